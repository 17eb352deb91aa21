#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/relation.h>

#include <array>
#include <cctype>
#include <limits>
#include <optional>
#include <utility>

namespace lockstep::exported {

namespace {

constexpr int kDeepestRelation = 200;

struct BinaryOperator {
  const char* token;
  int precedence;  // Python's order; higher binds tighter
  const char* target;
};

// A token comes before those that it begins with.
constexpr std::array<BinaryOperator, 19> kOperators{{{"or", 1, "_operator.or_"},
                                                     {"and", 2, "_operator.and_"},
                                                     {"==", 4, "_operator.eq"},
                                                     {"!=", 4, "_operator.ne"},
                                                     {"<=", 4, "_operator.le"},
                                                     {">=", 4, "_operator.ge"},
                                                     {"<<", 7, "_operator.lshift"},
                                                     {">>", 7, "_operator.rshift"},
                                                     {"<", 4, "_operator.lt"},
                                                     {">", 4, "_operator.gt"},
                                                     {"|", 5, "_operator.or_"},
                                                     {"&", 6, "_operator.and_"},
                                                     {"+", 8, "_operator.add"},
                                                     {"-", 8, "_operator.sub"},
                                                     {"**", 11, "_operator.pow"},
                                                     {"*", 9, "_operator.mul"},
                                                     {"//", 9, "_operator.floordiv"},
                                                     {"/", 9, "_operator.truediv"},
                                                     {"%", 9, "_operator.mod"}}};
constexpr int kNot = 3;
constexpr int kComparison = 4;
constexpr int kSign = 10;
constexpr int kPower = 11;

}  // namespace

bool is_name(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_';
}

/// Recursive descent over Python's expressions; the steps come out in the order of a stack.
class Relation::Parser {
 public:
  Parser(const std::string& text, const std::unordered_map<std::string, size_t>& inputs,
         std::vector<Step>& steps)
      : text_(text), inputs_(inputs), steps_(steps) {}

  void run() {
    expression(0);
    if (blank(); at_ != text_.size()) {
      fail();
    }
  }

 private:
  [[noreturn]] void fail() const {
    malformed("the relation of sizes \"", text_, "\" cannot be read from its character ", at_,
              ". Export with dynamic_shapes that do without it");
  }

  void blank() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
  }

  bool take(const std::string& token) {
    blank();
    if (text_.compare(at_, token.size(), token) != 0 ||
        (is_name(token[0]) && at_ + token.size() < text_.size() &&
         is_name(text_[at_ + token.size()]))) {
      return false;
    }
    at_ += token.size();
    return true;
  }

  void expect(const std::string& token) {
    if (!take(token)) {
      fail();
    }
  }

  std::string name() {
    blank();
    const size_t begin = at_;
    while (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '.')) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  void call(const std::string& target, size_t given) {
    Step step{Step::Kind::call, {}};
    size_t operands = 0;
    step.function = arithmetic_of(target, operands);
    if (step.function == nullptr || operands != given) {
      fail();
    }
    steps_.push_back(std::move(step));
  }

  void literal(c10::IValue value) { steps_.push_back({Step::Kind::literal, std::move(value)}); }

  /// The next operator, if it binds at least as `lowest`. "*" does not match "**".
  const BinaryOperator* next_operator(int lowest) {
    const size_t before = at_;
    for (const BinaryOperator& candidate : kOperators) {
      if (take(candidate.token)) {
        if (candidate.precedence >= lowest) {
          return &candidate;
        }
        break;
      }
    }
    at_ = before;
    return nullptr;
  }

  void expression(int lowest) {
    if (++depth_ > kDeepestRelation) {
      fail();
    }
    prefixed();
    bool compared = false;
    while (const BinaryOperator* found = next_operator(lowest)) {
      const bool comparison = found->precedence == kComparison;
      if (comparison && compared) {
        fail();  // a < b < c
      }
      compared = compared || comparison;
      expression(found->precedence == kPower ? kSign : found->precedence + 1);
      call(found->target, 2);
    }
    --depth_;
  }

  void prefixed() {
    if (take("not")) {
      expression(kNot);
      call("torch.sym_not", 1);
    } else if (take("-")) {
      expression(kSign);
      call("_operator.neg", 1);
    } else if (take("+")) {
      expression(kSign);
    } else {
      primary();
    }
  }

  void primary() {
    if (take("(")) {
      expression(0);
      return expect(")");
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      return digits();
    }
    if (take("L")) {
      return source();
    }
    const std::string function = name();
    if (function == "True" || function == "False") {
      return literal(function == "True");
    }
    if (function == "math.inf") {
      return literal(std::numeric_limits<double>::infinity());
    }
    arguments(function);
  }

  void digits() {
    size_t length = 0;
    const std::string rest =
        text_.substr(at_, text_.find_first_not_of("0123456789.eE+-", at_) - at_);
    const size_t whole = rest.find_first_not_of("0123456789");
    const bool floating = whole != std::string::npos &&
                          (rest[whole] == '.' || rest[whole] == 'e' || rest[whole] == 'E');
    try {
      if (floating) {
        literal(std::stod(rest, &length));
      } else {
        literal(static_cast<int64_t>(std::stoll(rest, &length)));
      }
    } catch (const std::out_of_range&) {
      fail();
    }
    at_ += length;
  }

  /// max(a, b, c) and the functions of one number.
  void arguments(const std::string& function) {
    const bool folds = function == "max" || function == "min";
    expect("(");
    size_t count = 0;
    do {
      expression(0);
      if (++count > 1) {
        call(folds ? "torch.sym_" + function : function, 2);
      }
    } while (take(","));
    expect(")");
    if (!folds && count == 1) {
      call(function, 1);
    }
  }

  /// ['x'], ['d']['a'][1], then .size()[0], .stride()[0], .storage_offset(), or nothing.
  void source() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] == '[') {
      at_ = text_.find(']', at_);
      if (at_ == std::string::npos) {
        at_ = begin;
        fail();
      }
      ++at_;
    }
    const auto input = inputs_.find(text_.substr(begin, at_ - begin));
    if (input == inputs_.end()) {
      at_ = begin;
      fail();
    }
    Step step{Step::Kind::input, {}, input->second};
    if (take(".storage_offset()")) {
      step.kind = Step::Kind::offset;
    } else if (const bool size = take(".size()["); size || take(".stride()[")) {
      step.kind = size ? Step::Kind::size : Step::Kind::stride;
      digits();
      const c10::IValue dimension = steps_.back().literal;
      steps_.pop_back();
      if (!dimension.isInt()) {
        fail();
      }
      step.dimension = dimension.toInt();
      expect("]");
    }
    steps_.push_back(std::move(step));
  }

  const std::string& text_;
  const std::unordered_map<std::string, size_t>& inputs_;
  std::vector<Step>& steps_;
  size_t at_ = 0;
  int depth_ = 0;
};

Relation::Relation(const std::string& text, const std::unordered_map<std::string, size_t>& inputs) {
  Parser(text, inputs, steps_).run();
  for (size_t at = 0; at < text.size(); ++at) {  // L['x'].size() is said as x.size()
    const size_t quote =
        text.compare(at, 3, "L['") == 0 ? text.find('\'', at + 3) : std::string::npos;
    if (quote == std::string::npos) {
      text_ += text[at];
    } else {
      text_ += text.substr(at + 3, quote - at - 3);
      at = quote + 1;
    }
  }
}

c10::IValue Relation::number(const Step& step, const std::vector<c10::IValue>& inputs) {
  if (step.kind == Step::Kind::literal) {
    return step.literal;
  }
  const c10::IValue& input = inputs[step.input];
  switch (step.kind) {
    case Step::Kind::size:
      return input.toTensor().size(step.dimension);
    case Step::Kind::stride:
      return input.toTensor().stride(step.dimension);
    case Step::Kind::offset:
      return input.toTensor().storage_offset();
    default:
      return input;
  }
}

bool Relation::holds(const std::vector<c10::IValue>& inputs) const {
  std::vector<c10::IValue> stack;
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::call) {
      step.function(stack);
    } else {
      stack.push_back(number(step, inputs));
    }
  }
  return stack.back().isBool() ? stack.back().toBool() : stack.back().toScalar().toDouble() != 0;
}

}  // namespace lockstep::exported
