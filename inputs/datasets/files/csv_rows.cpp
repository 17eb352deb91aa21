#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/files/csv_rows.h>

namespace lockstep::detail {
namespace {

constexpr size_t kMostFields = size_t{1} << 20;

}  // namespace

bool CsvRows::next() {
  fields_.clear();
  while (at_ < text_.size() && ends_line()) {
    end_line();
  }
  if (at_ == text_.size()) {
    return false;
  }
  byte_ = at_;
  line_ = next_line_;
  for (bool more = true; more;) {
    const bool quoted = quotes_ && at_ < text_.size() && text_[at_] == '"';
    fields_.push_back(quoted ? quoted_field() : plain_field());
    LOCKSTEP_CHECK_CODE(fields_.size() <= kMostFields, ExitCode::data, path_, ", line ", line_,
                        ": more than ", kMostFields, " fields");
    more = !ends_line();
    at_ += more ? 1 : 0;
  }
  end_line();
  return true;
}

void CsvRows::end_line() {
  at_ += text_.substr(at_, 2) == "\r\n" ? 2 : at_ < text_.size() ? 1 : 0;
  ++next_line_;
}

CsvRows::Field CsvRows::quoted_field() {
  const size_t opened = next_line_;
  Field field = {++at_, at_, true};
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '"') {
      if (text_.substr(at_, 2) != "\"\"") {
        break;
      }
      ++at_;
    } else if (text_[at_] == '\n' || (text_[at_] == '\r' && text_.substr(at_, 2) != "\r\n")) {
      ++next_line_;
    }
  }
  LOCKSTEP_CHECK_CODE(at_ < text_.size(), ExitCode::data, path_, ", line ", opened,
                      ": a quote does not end; CsvOptions().quotes(false) reads quotes as text");
  field.end = at_++;
  LOCKSTEP_CHECK_CODE(ends_line() || text_[at_] == separator_, ExitCode::data, path_, ", line ",
                      next_line_, ": text after the end of a quote, expected a separator");
  return field;
}

CsvRows::Field CsvRows::plain_field() {
  const size_t begin = at_;
  while (!ends_line() && text_[at_] != separator_) {
    ++at_;
  }
  return {begin, at_, false};
}

std::string CsvRows::text(const Field& field) const {
  const std::string_view bytes = text_.substr(field.begin, field.end - field.begin);
  if (!field.quoted) {
    return std::string(bytes);
  }
  std::string text;
  text.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    text += bytes[i];
    i += bytes[i] == '"' ? 1 : 0;  // the second one of two
  }
  return text;
}

}  // namespace lockstep::detail
