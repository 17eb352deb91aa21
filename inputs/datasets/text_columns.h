#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {

/// A dataset for language models that carry a hidden state from batch to batch (truncated
/// backpropagation through time). A text is cut into columns of equal length, which the model reads
/// side by side, one stretch after the other. A rest of the text that fills no column is left out.
///
///   const lockstep::TextColumns columns(words.read("train.txt"), /*columns=*/20, /*length=*/35);
///   auto loader = runtime.loader(
///       columns, lockstep::LoaderOptions().batch_size(columns.batch_size(runtime.size())));
///
/// Sample i is stretch i / columns of column i % columns: its tokens, and the tokens that follow
/// each of them, both int64 [length]; the last stretch of a column may be shorter. With the
/// batch_size() above and without shuffling, batch k of a rank has stretch k of the same columns as
/// batch k - 1, as two tensors [columns of the rank, length].
/// Without a length a sample is a whole column. That is the form for evaluate(), where the state
/// cannot be carried from batch to batch: the function passes the columns of a batch through the
/// model in stretches, beginning without a state.
/// Ranks: local; each has the whole text. Threads: several may call get at the same time.
class TextColumns {
 public:
  /// `text`: int64 [tokens]. `length`: tokens of a stretch; 0: whole columns. Throws Error if
  /// columns < 1 or length < 0, and (exit code data) if a column would have fewer than 2 tokens.
  TextColumns(const at::Tensor& text, int64_t columns, int64_t length = 0);

  /// Columns times the stretches of a column.
  size_t size() const;
  /// Tokens and their targets. Throws Error for an index that is not below size().
  std::pair<at::Tensor, at::Tensor> get(size_t index) const;
  /// Columns of each rank: the LoaderOptions::batch_size that gives a rank the same columns in
  /// every batch. Throws Error if `ranks` does not divide the columns.
  int64_t batch_size(int ranks) const;

 private:
  at::Tensor columns_;  // [columns, tokens]
  int64_t length_;
};

}  // namespace lockstep
