#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/csv_file.h>
#include <lockstep/inputs/datasets/files/csv_rows.h>
#include <lockstep/inputs/datasets/files/file_bytes.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // the byte order mark of UTF-8
constexpr size_t kBetweenMarks = 64;  // bytes; get() goes over at most so many

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

std::string shortened(const std::string& text, size_t most) {
  return text.size() > most ? text.substr(0, most) + "..." : text;
}

}  // namespace

CsvFile::CsvFile(const std::string& path, const CsvOptions& options)
    : path_(path), options_(options) {
  LOCKSTEP_CHECK(
      options.separator() != '"' && options.separator() != '\n' && options.separator() != '\r',
      "CsvOptions: the separator is a quote or the end of a line");
  bytes_ = detail::FileBytes(path).share();
  const std::string_view text(reinterpret_cast<const char*>(bytes_->data()), bytes_->size());
  const size_t zero = text.find('\0');
  LOCKSTEP_CHECK_CODE(zero == std::string_view::npos, ExitCode::data, path_, ", byte ", zero,
                      ": a byte of 0, which no text in UTF-8 has; is this another format, or text "
                      "in UTF-16?");
  detail::CsvRows rows = rows_from(
      {0, text.substr(0, kByteOrderMark.size()) == kByteOrderMark ? kByteOrderMark.size() : 0, 1});
  bool more = rows.next();
  LOCKSTEP_CHECK_CODE(more, ExitCode::data, path_, ": the file has no line");
  name_columns(rows);
  for (more = !options.header() || rows.next(); more; more = rows.next()) {
    LOCKSTEP_CHECK_CODE(rows.fields().size() == columns_.size(), ExitCode::data, path_, ", line ",
                        rows.line(), ": ", rows.fields().size(), " fields, expected ",
                        columns_.size(), " as in the first line");
    if (marks_.empty() || rows.byte() >= marks_.back().byte + kBetweenMarks) {
      marks_.push_back({rows_, rows.byte(), rows.line()});
    }
    ++rows_;
  }
}

void CsvFile::name_columns(const detail::CsvRows& first) {
  for (const auto& field : first.fields()) {
    columns_.push_back(options_.header() ? first.text(field) : std::to_string(columns_.size()));
  }
  std::unordered_set<std::string_view> names;
  for (const std::string& name : columns_) {
    LOCKSTEP_CHECK_CODE(names.insert(name).second, ExitCode::data, path_, ", line ", first.line(),
                        ": two columns have the name '", name,
                        "'; CsvOptions().header(false) counts the columns");
  }
}

size_t CsvFile::column(const std::string& name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  LOCKSTEP_CHECK_CODE(found != columns_.end(), ExitCode::data, path_, ": has no column '", name,
                      "', its columns are ", shortened(c10::Join(", ", columns_), 400));
  return static_cast<size_t>(found - columns_.begin());
}

detail::CsvRows CsvFile::rows_from(const Mark& mark) const {
  return {{reinterpret_cast<const char*>(bytes_->data()), bytes_->size()},
          options_.separator(),
          options_.quotes(),
          path_,
          mark.byte,
          mark.line};
}

detail::CsvRows CsvFile::row(size_t row) const {
  LOCKSTEP_CHECK(row < size(), path_, ": has no row ", row, ", it has ", size());
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), row,
                                      [](size_t r, const Mark& mark) { return r < mark.row; });
  const Mark& mark = *std::prev(after);
  detail::CsvRows rows = rows_from(mark);
  for (size_t at = mark.row; at <= row; ++at) {
    rows.next();
  }
  return rows;
}

std::vector<std::string> CsvFile::get(size_t row) const {
  const detail::CsvRows found = this->row(row);
  std::vector<std::string> texts;
  texts.reserve(columns_.size());
  for (const auto& field : found.fields()) {
    texts.push_back(found.text(field));
  }
  return texts;
}

std::string CsvFile::text(size_t row, const std::string& column) const {
  const detail::CsvRows found = this->row(row);
  return found.text(found.fields()[this->column(column)]);
}

std::vector<std::string> CsvFile::texts(const std::string& column) const {
  const size_t place = this->column(column);
  std::vector<std::string> texts;
  texts.reserve(rows_);
  if (rows_ > 0) {
    for (detail::CsvRows rows = rows_from(marks_.front()); rows.next();) {
      texts.push_back(rows.text(rows.fields()[place]));
    }
  }
  return texts;
}

at::Tensor CsvFile::numbers(const std::vector<std::string>& columns, at::ScalarType dtype) const {
  LOCKSTEP_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kLong,
                 "CsvFile::numbers: to ", dtype, ", expected fp32, fp64 or int64");
  std::unordered_map<std::string_view, size_t> by_name;
  for (const std::string& name : columns_) {
    by_name.emplace(name, by_name.size());
  }
  std::vector<size_t> places;
  for (const std::string& name : columns) {
    const auto found = by_name.find(name);
    places.push_back(found != by_name.end() ? found->second : column(name));
  }
  at::Tensor result = at::empty(
      {static_cast<int64_t>(size()), static_cast<int64_t>(columns.size())}, at::dtype(dtype));
  const auto fill = [&](auto* to) {
    using Number = std::remove_pointer_t<decltype(to)>;
    for (detail::CsvRows rows = rows_from(marks_.front()); rows.next();) {
      for (size_t i = 0; i < places.size(); ++i, ++to) {
        const std::string text = rows.text(rows.fields()[places[i]]);
        Number number = 0;
        LOCKSTEP_CHECK_CODE(parse_number(text, number), ExitCode::data, path_, ", line ",
                            rows.line(), ", column '", columns[i], "': '", shortened(text, 40),
                            "', expected a number of ", dtype);
        *to = number;
      }
    }
  };
  if (rows_ == 0) {
    return result;
  }
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
