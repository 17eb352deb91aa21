#include <lockstep/checkpointing/snapshot/write/writer_options.h>
#include <lockstep/collectives/check.h>

namespace lockstep::snapshot {

void WriterOptions::validate() const {
  const char* allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  LOCKSTEP_CHECK(run().size() <= 64 && run().find_first_not_of(allowed) == std::string::npos,
                 "WriterOptions: run must be at most 64 characters of [A-Za-z0-9_-], found \"",
                 run(), "\"");
  LOCKSTEP_CHECK(keep().last() >= 1, "WriterOptions: keep.last must be at least 1, found ",
                 keep().last(), ": the snapshot just written cannot be removed");
  LOCKSTEP_CHECK(keep().every() >= 0, "WriterOptions: keep.every must not be negative, found ",
                 keep().every());
  LOCKSTEP_CHECK(keep().best() >= 0, "WriterOptions: keep.best must not be negative, found ",
                 keep().best());
  LOCKSTEP_CHECK(min_shard_bytes() >= 1,
                 "WriterOptions: min_shard_bytes must be at least 1, found ", min_shard_bytes());
  LOCKSTEP_CHECK(files() != nullptr, "WriterOptions: files is null");
}

}  // namespace lockstep::snapshot
