#pragma once

#include <lockstep/inputs/exported/graph/arithmetic.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::exported {

/// Whether Python allows this character in a name.
bool is_name(char character);

/// A relation between the inputs' sizes that torch.export keeps as text (guards_code), such as
/// "L['x'].size()[0] == (2*L['y'].size()[0])".
class Relation {
 public:
  /// `inputs`: the position of each input, by its path: "['x']", "['d']['a'][1]". Throws Malformed
  /// for an expression that is not Python's arithmetic on sizes, or that names other inputs.
  Relation(const std::string& text, const std::unordered_map<std::string, size_t>& inputs);

  /// Throws Error for a division by 0, as Python does.
  bool holds(const std::vector<c10::IValue>& inputs) const;
  /// As Python's error says it: "x.size()[0] == 2 * y.size()[0]".
  const std::string& text() const { return text_; }

 private:
  class Parser;

  /// Pushes a number, or calls a function on the numbers before it.
  struct Step {
    enum class Kind : uint8_t { literal, input, size, stride, offset, call };
    Kind kind;
    c10::IValue literal;
    size_t input = 0;
    int64_t dimension = 0;
    Arithmetic function = nullptr;
  };

  static c10::IValue number(const Step& step, const std::vector<c10::IValue>& inputs);

  std::string text_;
  std::vector<Step> steps_;
};

}  // namespace lockstep::exported
