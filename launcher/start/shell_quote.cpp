#include "start/shell_quote.h"

namespace lockstep::launcher {
namespace {

bool is_plain(const std::string& argument) {
  return !argument.empty() && argument.find_first_not_of(
                                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-+=./,:@%") == std::string::npos;
}

std::string quoted(const std::string& argument) {
  std::string text = "'";
  for (const char c : argument) {
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return text + "'";
}

}  // namespace

std::string shell_quote(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) {
    line += line.empty() ? "" : " ";
    line += is_plain(argument) ? argument : quoted(argument);
  }
  return line;
}

}  // namespace lockstep::launcher
