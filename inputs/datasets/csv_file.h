#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace detail {
class CsvRows;
}  // namespace detail

struct CsvOptions {
  /// Between the fields of a line; a tab for TSV.
  TORCH_ARG(char, separator) = ',';
  /// True: the first line has the names of the columns. False: the columns are named "0", "1", ...
  TORCH_ARG(bool, header) = true;
  /// True: a field that begins with " ends at the next ", may hold separators and line breaks, and
  /// "" in it stands for one ". False: quotes are text, as in most TSV files.
  TORCH_ARG(bool, quotes) = true;
};

/// A table of text (RFC 4180): CSV or TSV, plain or gzip, in memory.
///
///   lockstep::CsvFile table("houses.csv");
///   at::Tensor x = table.numbers({"rooms", "area"});            // fp32 [rows, 2]
///   at::Tensor y = table.numbers({"price"}, at::kDouble);       // fp64 [rows, 1]
///   std::string note = table.text(3, "note");
///
/// Lines end with LF, CRLF or CR; empty lines and a byte order mark are skipped. Rows count from 0,
/// without the header. A row has at most 2^20 fields. Can be used as a dataset for Loader: get()
/// returns a row as text. Ranks: local. Threads: any. Throws Error (exit code data) that names
/// file, line (from 1), column and what was expected: missing or empty file, text in UTF-16, a row
/// with more or fewer fields than the first line, two columns of one name, a quote that does not
/// end or is followed by text, a column that is not there, a field that is not a number of the
/// dtype.
class CsvFile {
 public:
  explicit CsvFile(const std::string& path, const CsvOptions& options = {});

  /// Number of rows.
  size_t size() const { return rows_; }
  std::vector<std::string> get(size_t row) const;
  const std::vector<std::string>& columns() const { return columns_; }
  std::string text(size_t row, const std::string& column) const;
  /// The texts of a column.
  std::vector<std::string> texts(const std::string& column) const;
  /// The numbers of these columns, [rows, columns]: fp32, fp64 or int64. "nan" and "inf" are
  /// numbers of fp32 and fp64; spaces around a number are ignored.
  at::Tensor numbers(const std::vector<std::string>& columns,
                     at::ScalarType dtype = at::kFloat) const;

 private:
  /// Where a row begins.
  struct Mark {
    size_t row;
    size_t byte;
    size_t line;  // from 1
  };
  size_t column(const std::string& name) const;
  detail::CsvRows rows_from(const Mark& mark) const;
  detail::CsvRows row(size_t row) const;
  void name_columns(const detail::CsvRows& first);

  std::string path_;
  CsvOptions options_;
  std::shared_ptr<const std::vector<uint8_t>> bytes_;
  std::vector<std::string> columns_;
  std::vector<Mark> marks_;  // of the first row, and of further ones some bytes apart
  size_t rows_ = 0;
};

}  // namespace lockstep
