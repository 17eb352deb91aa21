#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/run_key.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "checkpointing/snapshot_rejected.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep::snapshot {
namespace {

using testing::rejection_of;
using testing::TemporaryFolder;

constexpr char kDigits[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

void write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), 0600);
}

/// Expected: hashlib.blake2b(text, key=bytes(range(32)), digest_size=32) of Python.
TEST(RunKey, SignsWithKeyedBlake2b) {
  const RunKey key(kDigits, "here");
  EXPECT_EQ(key.text(), kDigits);
  EXPECT_EQ(key.signature_of("lockstep"),
            "c16e8a06aaa92155838c4248ca65f8598bb2014767efb9ade721ec7fcc3aa91b");
  EXPECT_EQ(key.signature_of(""),
            "4e51e7a913fc80137da52880fecca175bf81e117d5c68126dc2774033517ea0d");
}

TEST(RunKey, IsMadeOnceAtRandom) {
  const TemporaryFolder one;
  const TemporaryFolder other;
  EXPECT_FALSE(RunKey::is_in(one.path()));
  const std::string first = RunKey::made_in(*FileSystem::real(), one.path()).text();
  EXPECT_TRUE(RunKey::is_in(one.path()));
  EXPECT_EQ(RunKey::made_in(*FileSystem::real(), one.path()).text(), first);
  EXPECT_EQ(RunKey::of(one.path()).text(), first);
  EXPECT_NE(RunKey::made_in(*FileSystem::real(), other.path()).text(), first);
  EXPECT_EQ(names_in(one.path()), std::vector<std::string>{"memory.key"});
}

TEST(RunKey, MustBeAFileThatNobodyElseCanReadOrHasMade) {
  const TemporaryFolder folder;
  const std::string path = folder.file("memory.key");
  EXPECT_THAT(rejection_of([&] { RunKey::of(folder.path()); }), HasSubstr(path));
  write(path, kDigits);
  EXPECT_EQ(RunKey::of(folder.path()).text(), kDigits);
  for (const mode_t mode : {0604, 0640, 0620, 0601, 0666}) {
    ::chmod(path.c_str(), mode);
    EXPECT_THAT(rejection_of([&] { RunKey::of(folder.path()); }),
                AllOf(HasSubstr(path), HasSubstr("0600")));
  }
  for (const std::string& text :
       {std::string(), std::string(kDigits).substr(2), std::string(kDigits) + "0",
        std::string(kDigits) + "00", "x" + std::string(kDigits).substr(1)}) {
    write(path, text);
    EXPECT_THAT(rejection_of([&] { RunKey::of(folder.path()); }),
                AllOf(HasSubstr(path), HasSubstr("64 hexadecimal digits")))
        << text;
  }
  std::filesystem::rename(path, path + ".real");
  std::filesystem::create_symlink(path + ".real", path);
  EXPECT_THAT(rejection_of([&] { RunKey::of(folder.path()); }), HasSubstr(path));
  if (::geteuid() == 0) {
    std::filesystem::remove(path);
    write(path, kDigits);
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    EXPECT_THAT(rejection_of([&] { RunKey::of(folder.path()); }), HasSubstr("of user 0"));
  }
}

TEST(RunKey, AcceptsAManifestWithItsOwnSignatureOnly) {
  const TemporaryFolder folder;
  const RunKey key(kDigits, "here");
  const std::string signature = key.signature_of("text");
  const std::string other = RunKey(std::string(64, 'a'), "here").signature_of("text");
  const auto refusal = [&] { return rejection_of([&] { key.check(folder.path()); }); };
  write(folder.file("manifest.json"), "text");
  EXPECT_THAT(refusal(), HasSubstr("manifest.signature"));
  write(folder.file("manifest.signature"), signature);
  EXPECT_NO_THROW(key.check(folder.path()));
  for (const std::string& wrong :
       {other, std::string(), signature.substr(1), signature + "\n", key.signature_of("texts")}) {
    write(folder.file("manifest.signature"), wrong);
    EXPECT_THAT(refusal(), HasSubstr("manifest.signature"));
  }
  write(folder.file("manifest.signature"), signature);
  write(folder.file("manifest.json"), "Text");
  EXPECT_THAT(refusal(), HasSubstr("manifest.signature"));
}

}  // namespace
}  // namespace lockstep::snapshot
