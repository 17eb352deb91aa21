#include <lockstep/checkpointing/snapshot/impl/writer_options.h>
#include <lockstep/collectives/check.h>

namespace lockstep::snapshot {

void WriterOptions::validate() const {
  const char* allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  LOCKSTEP_CHECK(run().size() <= 64 && run().find_first_not_of(allowed) == std::string::npos,
                 "WriterOptions: run must be at most 64 characters of [A-Za-z0-9_-], found \"",
                 run(), "\"");
  detail::require_ranges(detail::rows_of(keep()));
  LOCKSTEP_CHECK(min_shard_bytes() >= 1,
                 "WriterOptions: min_shard_bytes must be at least 1, found ", min_shard_bytes());
  LOCKSTEP_CHECK(files() != nullptr, "WriterOptions: files is null");
}

}  // namespace lockstep::snapshot
