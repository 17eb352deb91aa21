#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>
#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace detail {
class MappedData;
}  // namespace detail

struct TokenShardOptions {
  /// Tokens of a sample. Requires: >= 1.
  TORCH_ARG(int64_t, window) = 1024;
  /// Tokens from the beginning of a sample to that of the next. 0: `window`, so that each target is
  /// used once. Requires: >= 0.
  TORCH_ARG(int64_t, stride) = 0;
  /// 2: the files hold uint16; 4: uint32.
  TORCH_ARG(int, token_bytes) = 2;
  /// Number of different tokens: get() refuses a token that is not below. 0: any token.
  TORCH_ARG(int64_t, vocabulary) = 0;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
};

/// A dataset of windows of text, from files of tokens that are mapped into memory. A file (shard)
/// is tokens one after another, little-endian, without a header, as nanoGPT and
/// write_token_shards() write them.
///
///   lockstep::TokenShards text({"train-00000.bin"}, lockstep::TokenShardOptions().window(256));
///
/// A sample is a window of n tokens and its targets, the n tokens that follow each of them: both
/// int64 [n]. A window lies in one shard; a rest that is too short for a window is left out. Can be
/// used as a dataset for Loader. The files must not change while they are open.
/// Ranks: local. Threads: several threads may call get at the same time.
/// Throws Error (exit code data) that names the file: missing, empty, no whole number of tokens; no
/// shard has a window of n + 1 tokens; from get(), with the byte offset: a token that is not below
/// the vocabulary.
class TokenShards {
 public:
  explicit TokenShards(const std::vector<std::string>& paths,
                       const TokenShardOptions& options = {});

  /// Number of windows.
  size_t size() const { return static_cast<size_t>(ends_.back()); }
  /// Tokens and their targets.
  std::pair<at::Tensor, at::Tensor> get(size_t index) const;
  /// Number of tokens in all shards.
  int64_t tokens() const { return tokens_; }

 private:
  TokenShardOptions options_;
  std::vector<std::shared_ptr<const detail::MappedData>> files_;
  std::vector<int64_t> ends_;  // of each shard: the windows before its end
  int64_t tokens_ = 0;
};

/// Writes the tokens of text files to PREFIX-00000.bin, PREFIX-00001.bin, ... for TokenShards, and
/// returns these names. `tokenize` gets one line after another, with its line feed. A shard has
/// `tokens_per_shard` tokens, the last one the rest.
///
///   lockstep::write_token_shards({"book.txt"}, "book", [&](const std::string& line) {
///     return vocabulary.tokens_of(line);
///   });
///
/// Each shard is written under another name first, so one that is there is complete.
/// Ranks: call on one rank; in a program of several ranks call the next form. Throws Error (exit
/// code data) that names the file: a text file that cannot be read, a token that does not fit in
/// `token_bytes` bytes, no token at all, a shard that cannot be written.
std::vector<std::string> write_token_shards(
    const std::vector<std::string>& text_files, const std::string& prefix,
    const std::function<std::vector<int64_t>(const std::string&)>& tokenize, int token_bytes = 2,
    int64_t tokens_per_shard = int64_t{1} << 27);

/// The same for the ranks of `hosts`, which is runtime.control() in a program with a Runtime: rank
/// 0 writes, the other ranks wait, and all return the names that rank 0 wrote.
///
///   const auto shards = lockstep::write_token_shards(runtime.control(), {"book.txt"}, "book",
///                                                    tokenize);
///
/// All ranks must see the folder of the shards. The others wait as long as rank 0 takes: after 1000
/// lines, and before a line if 5 seconds have passed, it tells them that it goes on, so that their
/// deadline counts from there. One line must fit in the deadline.
/// Ranks: collective. Only rank 0 reads the other arguments and calls `tokenize`. Throws the same
/// Error on every rank, with that of rank 0.
std::vector<std::string> write_token_shards(
    const Communicator& hosts, const std::vector<std::string>& text_files,
    const std::string& prefix,
    const std::function<std::vector<int64_t>(const std::string&)>& tokenize, int token_bytes = 2,
    int64_t tokens_per_shard = int64_t{1} << 27);

}  // namespace lockstep
