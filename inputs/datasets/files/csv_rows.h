#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

/// Goes over the rows of a CSV text, one after another. Errors: Error with exit code data that
/// names file and line. Threads: one.
class CsvRows {
 public:
  struct Field {
    size_t begin;
    size_t end;
    bool quoted;  // the bytes between the quotes, in which "" stands for one
  };
  /// Begins at `byte`, on `line`. The text and `path` must stay.
  CsvRows(std::string_view text, char separator, bool quotes, const std::string& path, size_t byte,
          size_t line)
      : text_(text),
        separator_(separator),
        quotes_(quotes),
        path_(path),
        at_(byte),
        next_line_(line) {}

  /// Goes to the next row that is not empty. False at the end.
  bool next();

  /// Of this row.
  const std::vector<Field>& fields() const { return fields_; }
  size_t byte() const { return byte_; }
  size_t line() const { return line_; }
  std::string text(const Field& field) const;

 private:
  bool ends_line() const { return at_ == text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; }
  void end_line();
  Field quoted_field();
  Field plain_field();

  std::string_view text_;
  char separator_;
  bool quotes_;
  const std::string& path_;
  size_t at_;
  size_t next_line_;
  std::vector<Field> fields_;
  size_t byte_ = 0;
  size_t line_ = 0;
};

}  // namespace lockstep::detail
