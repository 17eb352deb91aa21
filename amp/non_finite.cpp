#include <lockstep/amp/non_finite.h>

#include <c10/util/StringUtil.h>

#include <cmath>
#include <sstream>

namespace lockstep::amp {

namespace {

std::string join(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += c10::str(text.empty() ? "" : ", ", size);
  }
  return "[" + text + "]";
}

}  // namespace

std::string TracedOperator::describe() const {
  std::string place;
  if (!parameter.empty()) {
    place = c10::str(" of ", module.empty() ? "the model" : module, " (reads ", parameter, ")");
  } else if (!module.empty()) {
    place = c10::str(backward ? " for what follows " : " after ", module);
  }
  return c10::str(backward ? "backward " : "forward ", name, place, ", ", dtype, join(sizes), ": ",
                  values.describe());
}

std::string NonFinite::describe() const {
  std::ostringstream out;
  switch (origin) {
    case Origin::op:
      out << "first non-finite value made by ";
      break;
    case Origin::parameter:
      out << "non-finite before the forward in parameter " << first.parameter << ", first read by ";
      break;
    case Origin::input:
      out << "non-finite in a tensor that came from outside (the batch or a buffer), first read "
             "by ";
      break;
    case Origin::number:
      out << "the number " << number << " of the program, not a tensor, was given to ";
      break;
  }
  out << first.describe() << "\n  largest input: " << largest_input.describe();
  if (largest_input.absmax > 0) {
    out.precision(3);
    out << ", headroom in fp16 " << largest_input.headroom_bits(at::kHalf) << " bits";
  }
  for (const TracedOperator& op : before) {
    out << "\n  before: " << op.describe();
  }
  return out.str();
}

}  // namespace lockstep::amp
