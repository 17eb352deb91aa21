#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/launch.h"
#include "test_names.h"

namespace lockstep::testing {
namespace {

Launched train_images(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"run", "-n", "2", "--", FASHION_MNIST};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return launch(all);
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// The process of rank 1 whose command line contains `word`; 0 if there is none.
pid_t rank_one_of(const std::string& word) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto read = [&](const char* name) {
      std::ifstream file(entry.path() / name, std::ios::binary);
      std::ostringstream content;
      content << file.rdbuf();
      return content.str();
    };
    const std::string command = read("cmdline");
    if (command.rfind(BYTE_GPT, 0) == 0 && command.find(word) != std::string::npos &&
        read("environ").find(std::string("OMPI_COMM_WORLD_RANK=1\0", 23)) != std::string::npos) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return 0;
}

int shared_segments() {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    found += entry.path().filename().string().find("lockstep-") == 0 ? 1 : 0;
  }
  return found;
}

TEST(BadInput, AnUnknownOptionEndsWithCode2) {
  const Launched result = train_images({"--no-such-option"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr("--no-such-option"));
}

TEST(BadInput, AMissingDataFolderEndsWithCode10AndNamesTheFile) {
  const Launched result = train_images({"--data", "/no/such/folder"});
  EXPECT_EQ(result.code, 10);
  EXPECT_THAT(result.error, HasSubstr("/no/such/folder/train-images-idx3-ubyte"));
}

TEST(BadInput, ATruncatedDataFileEndsWithCode10AndNamesTheByte) {
  const Folder folder;
  write_file(folder.path() + "/train-images-idx3-ubyte",
             std::string("\0\0\x08\x03\0\0\0\x05\0\0\0\x1c\0\0\0\x1c", 16) + std::string(100, 'x'));
  write_file(folder.path() + "/train-labels-idx1-ubyte",
             std::string("\0\0\x08\x01\0\0\0\x05", 8) + std::string(5, '\1'));
  const Launched result = train_images({"--data", folder.path()});
  EXPECT_EQ(result.code, 10);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("train-images-idx3-ubyte, byte 116"), HasSubstr("expected 3920")));
}

TEST(BadInput, AnEmptyDataFileEndsWithCode10) {
  const Folder folder;
  write_file(folder.path() + "/train-images-idx3-ubyte", "");
  const Launched result = train_images({"--data", folder.path()});
  EXPECT_EQ(result.code, 10);
  EXPECT_THAT(result.error, HasSubstr("the file is empty"));
}

TEST(BadInput, AKilledRankEndsTheJobWithin10SecondsAndLeavesNothing) {
  const int segments = shared_segments();
  const Folder folder;
  const std::string word = folder.path();
  write_file(word + "/text", std::string(5000, 'a'));
  bool killed = false;
  std::chrono::steady_clock::time_point killed_at;
  const Launched result =
      launch({"run", "-n", "2", "--", BYTE_GPT, "--text", word + "/text", "--steps", "1000000",
              "--width", "16", "--layers", "1", "--context", "16"},
             [&](pid_t, const std::string& out) {
               const pid_t rank =
                   !killed && out.find("1/1000000") != std::string::npos ? rank_one_of(word) : 0;
               if (rank != 0) {
                 kill(rank, SIGKILL);
                 killed = true;
                 killed_at = std::chrono::steady_clock::now();
               }
             });
  ASSERT_TRUE(killed) << result.out << result.error;
  EXPECT_LT(std::chrono::steady_clock::now() - killed_at, std::chrono::seconds(10));
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.error, HasSubstr("rank 1 was killed by SIGKILL"));
  EXPECT_EQ(processes_with(word), 0);
  EXPECT_EQ(shared_segments(), segments);
}

}  // namespace
}  // namespace lockstep::testing
