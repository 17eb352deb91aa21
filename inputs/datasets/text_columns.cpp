#include <lockstep/collectives/check.h>
#include <lockstep/inputs/text_columns.h>

#include <algorithm>

namespace lockstep {

TextColumns::TextColumns(const at::Tensor& text, int64_t columns, int64_t length) {
  LOCKSTEP_CHECK(columns >= 1, "TextColumns: columns is ", columns, ", expected 1 or more");
  LOCKSTEP_CHECK(length >= 0, "TextColumns: length is ", length, ", expected 0 or more");
  LOCKSTEP_CHECK(text.dim() == 1 && text.scalar_type() == at::kLong, "TextColumns: the text is ",
                 text.scalar_type(), " ", text.sizes(), ", expected int64 [tokens]");
  const int64_t tokens = text.numel() / columns;
  LOCKSTEP_CHECK_CODE(tokens >= 2, ExitCode::data, "TextColumns: the text has ", text.numel(),
                      " tokens, too few for ", columns, " columns of 2 tokens or more");
  columns_ = text.narrow(0, 0, columns * tokens).view({columns, tokens});
  length_ = length > 0 ? std::min(length, tokens - 1) : tokens - 1;
}

size_t TextColumns::size() const {
  const int64_t targets = columns_.size(1) - 1;
  return static_cast<size_t>(columns_.size(0) * ((targets + length_ - 1) / length_));
}

std::pair<at::Tensor, at::Tensor> TextColumns::get(size_t index) const {
  LOCKSTEP_CHECK(index < size(), "TextColumns: there is no sample ", index, ", there are ", size());
  const auto column = static_cast<int64_t>(index) % columns_.size(0);
  const int64_t begin = static_cast<int64_t>(index) / columns_.size(0) * length_;
  const int64_t length = std::min(length_, columns_.size(1) - 1 - begin);
  const at::Tensor tokens = columns_.select(0, column);
  return {tokens.narrow(0, begin, length), tokens.narrow(0, begin + 1, length)};
}

int64_t TextColumns::batch_size(int ranks) const {
  LOCKSTEP_CHECK(ranks >= 1 && columns_.size(0) % ranks == 0, "TextColumns: ", columns_.size(0),
                 " columns cannot be divided among ", ranks, " ranks; choose a multiple of ", ranks,
                 " columns");
  return columns_.size(0) / ranks;
}

}  // namespace lockstep
