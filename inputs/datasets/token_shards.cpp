#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/file_format.h>
#include <lockstep/collectives/impl/outcome.h>
#include <lockstep/inputs/datasets/files/mapped_data.h>
#include <lockstep/inputs/token_shards.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

/// Little-endian.
int64_t token_at(const uint8_t* bytes, int token_bytes) {
  uint32_t token = 0;
  for (int i = 0; i < token_bytes; ++i) {
    token |= static_cast<uint32_t>(bytes[i]) << (8 * i);
  }
  return token;
}

void require_token_bytes(int token_bytes) {
  LOCKSTEP_CHECK(token_bytes == 2 || token_bytes == 4, "token shards: token_bytes is ", token_bytes,
                 ", expected 2 or 4");
}

/// Writes shards one after another.
class ShardWriter {
 public:
  ShardWriter(std::string prefix, int token_bytes, int64_t tokens_per_shard)
      : prefix_(std::move(prefix)), token_bytes_(token_bytes), most_(tokens_per_shard) {}

  void add(int64_t token) {
    if (!file_.is_open()) {
      open();
    }
    char bytes[4];
    for (int i = 0; i < token_bytes_; ++i) {
      bytes[i] = static_cast<char>(token >> (8 * i));
    }
    file_.write(bytes, token_bytes_);
    if (++tokens_ == most_) {
      close();
    }
  }
  void close() {
    if (!file_.is_open()) {
      return;
    }
    file_.close();
    check(!file_.fail(), "cannot be written");
    check(std::rename(unfinished().c_str(), names_.back().c_str()) == 0, "cannot be renamed");
    tokens_ = 0;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::string unfinished() const { return names_.back() + ".unfinished"; }
  void check(bool condition, const char* problem) const {
    LOCKSTEP_CHECK_CODE(condition, ExitCode::data, names_.back(), ": ", problem, ": ",
                        std::strerror(errno));
  }
  void open() {
    char number[32];
    std::snprintf(number, sizeof(number), "-%05zu.bin", names_.size());
    names_.push_back(prefix_ + number);
    file_.open(unfinished(), std::ios::binary | std::ios::trunc);
    check(file_.is_open(), "cannot be written");
  }

  std::string prefix_;
  int token_bytes_;
  int64_t most_;
  std::vector<std::string> names_;
  std::ofstream file_;
  int64_t tokens_ = 0;  // of the present shard
};

/// On rank 0: how many lines, or how much time, between two messages to the other ranks.
constexpr int64_t kLinesBetweenSigns = 1000;
constexpr std::chrono::seconds kBetweenSigns(5);
constexpr char kBetweenNames = '\0';

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> all;
  std::istringstream rest(names);
  for (std::string name; std::getline(rest, name, kBetweenNames);) {
    all.push_back(name);
  }
  return all;
}

/// Throws if the file is of a known format, packed or in UTF-16. Leaves it at its beginning.
void require_text(std::ifstream& file, const std::string& path) {
  if (file.tellg() != std::streampos(0)) {
    return;  // a pipe cannot go back
  }
  char beginning[512];
  file.read(beginning, sizeof(beginning));
  const auto* format = detail::known_format({beginning, static_cast<size_t>(file.gcount())});
  LOCKSTEP_CHECK_CODE(format == nullptr, ExitCode::data, path, ": this is a file of ",
                      format != nullptr ? format->name : "", ", expected text; ",
                      format != nullptr ? format->advice : "");
  file.clear();
  file.seekg(0);
}

}  // namespace

void TokenShardOptions::validate() const {
  LOCKSTEP_CHECK(window() >= 1 && window() < int64_t{1} << 40, "TokenShardOptions: window is ",
                 window(), ", expected 1 or more");
  LOCKSTEP_CHECK(stride() >= 0 && stride() < int64_t{1} << 40, "TokenShardOptions: stride is ",
                 stride(), ", expected 0 or more");
  LOCKSTEP_CHECK(vocabulary() >= 0, "TokenShardOptions: vocabulary is ", vocabulary(),
                 ", expected 0 or more");
  require_token_bytes(token_bytes());
}

TokenShards::TokenShards(const std::vector<std::string>& paths, const TokenShardOptions& options)
    : options_(options) {
  options_.validate();
  LOCKSTEP_CHECK_CODE(!paths.empty(), ExitCode::data, "TokenShards: no file was given");
  options_.stride(options_.stride() == 0 ? options_.window() : options_.stride());
  const auto bytes = static_cast<size_t>(options_.token_bytes());
  int64_t windows = 0;
  for (const std::string& path : paths) {
    const auto file = std::make_shared<const detail::MappedData>(path);
    file->check(file->text().substr(0, 6) != "\x93NUMPY", 0,
                "this is a file of numpy.save; write the tokens alone, with tokens.tofile(path)");
    file->check(file->size() % bytes == 0, file->size(),
                "the file ends in the middle of a token of ", bytes, " bytes");
    const auto tokens = static_cast<int64_t>(file->size() / bytes);
    const int64_t first_too_many =
        tokens - options_.window();  // a window needs one more token, its target
    windows += first_too_many > 0 ? (first_too_many - 1) / options_.stride() + 1 : 0;
    tokens_ += tokens;
    files_.push_back(file);
    ends_.push_back(windows);
  }
  LOCKSTEP_CHECK_CODE(windows > 0, ExitCode::data, paths.front(), ": no shard has a window of ",
                      options_.window(), " tokens and their targets; use a smaller window");
}

std::pair<at::Tensor, at::Tensor> TokenShards::get(size_t index) const {
  const auto wanted = static_cast<int64_t>(index);
  const auto shard = std::upper_bound(ends_.begin(), ends_.end(), wanted);
  LOCKSTEP_CHECK(shard != ends_.end(), "TokenShards: there is no window ", index, ", there are ",
                 size());
  const auto number = static_cast<size_t>(shard - ends_.begin());
  const int64_t before = number == 0 ? 0 : ends_[number - 1];
  const detail::MappedData& file = *files_[number];
  const int bytes = options_.token_bytes();
  auto offset = static_cast<size_t>((wanted - before) * options_.stride() * bytes);
  const at::Tensor tokens = at::empty({options_.window() + 1}, at::kLong);
  auto* to = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i <= options_.window(); ++i, offset += static_cast<size_t>(bytes)) {
    to[i] = token_at(file.data() + offset, bytes);
    file.check(options_.vocabulary() == 0 || to[i] < options_.vocabulary(), offset, "token ", to[i],
               ", expected one below ", options_.vocabulary());
  }
  return {tokens.narrow(0, 0, options_.window()), tokens.narrow(0, 1, options_.window())};
}

std::vector<std::string> write_token_shards(
    const std::vector<std::string>& text_files, const std::string& prefix,
    const std::function<std::vector<int64_t>(const std::string&)>& tokenize, int token_bytes,
    int64_t tokens_per_shard) {
  require_token_bytes(token_bytes);
  LOCKSTEP_CHECK(tokens_per_shard >= 1, "write_token_shards: tokens_per_shard is ",
                 tokens_per_shard, ", expected 1 or more");
  ShardWriter shards(prefix, token_bytes, tokens_per_shard);
  const int64_t end = int64_t{1} << (8 * token_bytes);
  for (const std::string& path : text_files) {
    std::ifstream text(path, std::ios::binary);
    LOCKSTEP_CHECK_CODE(text.is_open(), ExitCode::data, path,
                        ": cannot be opened: ", std::strerror(errno));
    require_text(text, path);
    std::string line;
    for (int64_t number = 1; std::getline(text, line); ++number) {
      line += text.eof() ? "" : "\n";
      for (const int64_t token : tokenize(line)) {
        LOCKSTEP_CHECK_CODE(token >= 0 && token < end, ExitCode::data, path, ", line ", number,
                            ": token ", token, " does not fit in ", token_bytes,
                            " bytes; write more bytes per token");
        shards.add(token);
      }
    }
    LOCKSTEP_CHECK_CODE(!text.bad(), ExitCode::data, path, ": cannot be read");
  }
  shards.close();
  LOCKSTEP_CHECK_CODE(!shards.names().empty(), ExitCode::data, prefix,
                      ": the text files have no token");
  return shards.names();
}

std::vector<std::string> write_token_shards(
    const Communicator& hosts, const std::vector<std::string>& text_files,
    const std::string& prefix,
    const std::function<std::vector<int64_t>(const std::string&)>& tokenize, int token_bytes,
    int64_t tokens_per_shard) {
  const detail::Agreement agreement(hosts);
  detail::Outcome mine;
  if (hosts.rank() == 0) {
    using Clock = std::chrono::steady_clock;
    int64_t lines = 0;
    auto last_sign = Clock::now();
    mine = agreement.outcome_of([&] {
      std::string names;
      const auto with_signs = [&](const std::string& line) {
        if (++lines % kLinesBetweenSigns == 0 || Clock::now() - last_sign > kBetweenSigns) {
          agreement.any(true);
          last_sign = Clock::now();
        }
        return tokenize(line);
      };
      for (const std::string& name :
           write_token_shards(text_files, prefix, with_signs, token_bytes, tokens_per_shard)) {
        names += name + kBetweenNames;
      }
      return names;
    });
    agreement.any(false);
  } else {
    while (agreement.any(false)) {
    }
  }
  const std::vector<detail::Outcome> outcomes = agreement.exchange(mine);
  if (const auto failure = detail::failure_in(outcomes)) {
    throw Error(*failure);
  }
  return split_names(outcomes.front().text);
}

}  // namespace lockstep
