#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/csv_file.h>
#include <lockstep/inputs/datasets/files/file_bytes.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace lockstep {
namespace {

/// True if all of `text` is a number of this type.
template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto first = text.find_first_not_of(" \t");
  const auto last = text.find_last_not_of(" \t");
  text = first == std::string_view::npos ? "" : text.substr(first, last - first + 1);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') {
    text.remove_prefix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size()) {
    return false;
  }
  if constexpr (std::is_same_v<Number, float>) {
    if (error == std::errc::result_out_of_range) {  // fp32: 1e-50 is 0; 1e50 is refused
      double wide = 0.0;
      const bool known = parse_number(text, wide) && std::abs(wide) < 1.0;
      number = static_cast<float>(wide);
      return known;
    }
  }
  return error == std::errc();
}

std::string shortened(const std::string& text) {
  return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

}  // namespace

CsvFile::CsvFile(const std::string& path, const CsvOptions& options) : path_(path) {
  LOCKSTEP_CHECK(
      options.separator() != '"' && options.separator() != '\n' && options.separator() != '\r',
      "CsvOptions: the separator is a quote or the end of a line");
  bytes_ = detail::FileBytes(path).share();
  parse(options.separator(), options.quotes());
  name_columns(options.header());
}

/// Fills fields_ and lines_, including the first line. All lines must have as many fields as that.
void CsvFile::parse(char separator, bool quotes) {
  const char* text = reinterpret_cast<const char*>(bytes_->data());
  const size_t size = bytes_->size();
  const bool marked = std::string_view(text, size).substr(0, 3) == "\xef\xbb\xbf";
  size_t columns = 0;
  size_t line = 1;
  size_t at = marked ? 3 : 0;
  const auto ends_line = [&] {
    return at == size || text[at] == '\n' ||
           (text[at] == '\r' && (at + 1 == size || text[at + 1] == '\n'));
  };
  while (at < size) {
    const size_t row_line = line;
    const size_t before = fields_.size();
    const bool empty = ends_line();
    for (bool more = !empty; more;) {
      const bool quoted = quotes && text[at] == '"';
      Field field = {at + (quoted ? 1 : 0), at, quoted};
      if (quoted) {
        const size_t opened = line;
        for (++at; at < size && (text[at] != '"' || (at + 1 < size && text[at + 1] == '"')); ++at) {
          line += text[at] == '\n' ? 1 : 0;
          at += text[at] == '"' ? 1 : 0;
        }
        LOCKSTEP_CHECK_CODE(at < size, ExitCode::data, path_, ", line ", opened,
                            ": a quote does not end; CsvOptions().quotes(false) reads quotes as "
                            "text");
        field.end = at++;
        LOCKSTEP_CHECK_CODE(ends_line() || text[at] == separator, ExitCode::data, path_, ", line ",
                            line, ": text after the end of a quote, expected a separator");
      } else {
        while (!ends_line() && text[at] != separator) {
          ++at;
        }
        field.end = at;
      }
      fields_.push_back(field);
      more = !ends_line();
      at += more ? 1 : 0;
      if (more && ends_line()) {  // the line ends with a separator: an empty field
        fields_.push_back({at, at, false});
        more = false;
      }
    }
    at += at < size && text[at] == '\r' ? 1 : 0;
    at += at < size ? 1 : 0;
    ++line;
    if (empty) {
      continue;
    }
    const size_t found = fields_.size() - before;
    columns = lines_.empty() ? found : columns;
    LOCKSTEP_CHECK_CODE(found == columns, ExitCode::data, path_, ", line ", row_line, ": ", found,
                        " fields, expected ", columns, " as in the first line");
    lines_.push_back(row_line);
  }
  LOCKSTEP_CHECK_CODE(!lines_.empty(), ExitCode::data, path_, ": the file has no line");
  columns_.resize(columns);
}

void CsvFile::name_columns(bool header) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    columns_[c] = header ? text_of(fields_[c]) : std::to_string(c);
  }
  if (!header) {
    return;
  }
  std::vector<std::string> sorted = columns_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  LOCKSTEP_CHECK_CODE(twice == sorted.end(), ExitCode::data, path_, ", line ", lines_[0],
                      ": two columns have the name '", *twice,
                      "'; CsvOptions().header(false) counts the columns");
  fields_.erase(fields_.begin(), fields_.begin() + static_cast<std::ptrdiff_t>(columns_.size()));
  lines_.erase(lines_.begin());
}

std::string CsvFile::text_of(const Field& field) const {
  std::string text(reinterpret_cast<const char*>(bytes_->data()) + field.begin,
                   field.end - field.begin);
  if (field.quoted) {
    for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 1)) {
      text.erase(at, 1);
    }
  }
  return text;
}

size_t CsvFile::column(const std::string& name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  LOCKSTEP_CHECK_CODE(found != columns_.end(), ExitCode::data, path_, ": has no column '", name,
                      "', its columns are ", c10::Join(", ", columns_));
  return static_cast<size_t>(found - columns_.begin());
}

std::vector<std::string> CsvFile::get(size_t row) const {
  LOCKSTEP_CHECK(row < size(), path_, ": has no row ", row, ", it has ", size());
  std::vector<std::string> texts;
  for (size_t c = 0; c < columns_.size(); ++c) {
    texts.push_back(text_of(field(row, c)));
  }
  return texts;
}

std::string CsvFile::text(size_t row, const std::string& column) const {
  LOCKSTEP_CHECK(row < size(), path_, ": has no row ", row, ", it has ", size());
  return text_of(field(row, this->column(column)));
}

std::vector<std::string> CsvFile::texts(const std::string& column) const {
  const size_t place = this->column(column);
  std::vector<std::string> texts;
  for (size_t row = 0; row < size(); ++row) {
    texts.push_back(text_of(field(row, place)));
  }
  return texts;
}

at::Tensor CsvFile::numbers(const std::vector<std::string>& columns, at::ScalarType dtype) const {
  LOCKSTEP_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kLong,
                 "CsvFile::numbers: to ", dtype, ", expected fp32, fp64 or int64");
  at::Tensor result = at::empty(
      {static_cast<int64_t>(size()), static_cast<int64_t>(columns.size())}, at::dtype(dtype));
  const auto fill = [&](auto* to) {
    using Number = std::remove_pointer_t<decltype(to)>;
    for (size_t i = 0; i < columns.size(); ++i) {
      const size_t place = column(columns[i]);
      for (size_t row = 0; row < size(); ++row) {
        const std::string text = text_of(field(row, place));
        Number number = 0;
        LOCKSTEP_CHECK_CODE(parse_number(text, number), ExitCode::data, path_, ", line ",
                            lines_[row], ", column '", columns[i], "': '", shortened(text),
                            "', expected a number of ", dtype);
        to[row * columns.size() + i] = number;
      }
    }
  };
  if (dtype == at::kFloat) {
    fill(result.mutable_data_ptr<float>());
  } else if (dtype == at::kDouble) {
    fill(result.mutable_data_ptr<double>());
  } else {
    fill(result.mutable_data_ptr<int64_t>());
  }
  return result;
}

}  // namespace lockstep
