// Snapshots in memory are this user's alone: nobody else reads them, nor chooses them for a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/memory_snapshots.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"
#include "memory_nodes.h"
#include "test_names.h"

namespace lockstep {
namespace {

using snapshot::MemorySnapshots;

constexpr uid_t kAnotherUser = 65534;

int mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return static_cast<int>(status.st_mode & 07777);
}

bool is_root() {
  return ::geteuid() == 0;
}

std::string of_user(const Nodes& nodes) {
  return nodes.memory() + "/lockstep.memory-" + std::to_string(::geteuid());
}

/// One node, the last, is another than the others.
bool is_odd(const Nodes& nodes) {
  return nodes.ranks.rank() == nodes.ranks.size() - 1;
}

/// On the odd node.
void change(const Nodes& nodes, const std::function<void()>& action) {
  nodes.ranks.barrier().wait();
  if (is_odd(nodes)) {
    action();
  }
  nodes.ranks.barrier().wait();
}

void save_one(const Nodes& nodes, int64_t update) {
  MemorySnapshots snapshots = nodes.snapshots();
  snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
  nodes.save(snapshots, update);
}

/// No rank reads or writes there, each is told why in the same words, and what is there stays.
void expect_refused(const Nodes& nodes, const std::string& named) {
  std::vector<std::string> notes;
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  EXPECT_THAT(notes, ElementsAre(HasSubstr(named)));
  MemorySnapshots snapshots = nodes.snapshots();
  std::string text;
  try {
    snapshots.open("run-a", 100, /*min_shard_bytes=*/1);
    ADD_FAILURE() << "opened";
  } catch (const Error& error) {
    text = error.what();
    EXPECT_EQ(error.code(), ExitCode::snapshot);
  }
  EXPECT_THAT(text, AllOf(HasSubstr(named), HasSubstr("memory_folder")));
  EXPECT_EQ(nodes.ranks.all_gather_bytes(text)[0], text);
  snapshots.forget(0, 1000);
  snapshots.remove();
  nodes.ranks.barrier().wait();
}

TEST(PrivateMemory, IsForItsUserAloneWhateverTheUmask) {
  for (const mode_t mask : {0000, 0022, 0377}) {
    const Nodes nodes(apart());
    const mode_t before = ::umask(mask);
    MemorySnapshots snapshots = nodes.snapshots();
    snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(snapshots, 5);
    ::umask(before);
    EXPECT_EQ(mode_of(of_user(nodes)), 0700);
    EXPECT_EQ(mode_of(nodes.root + "/run/memory.key"), 0600);
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(of_user(nodes))) {
      EXPECT_EQ(mode_of(entry.path()), entry.is_directory() ? 0700 : 0600) << entry.path();
      files += entry.is_regular_file() ? 1 : 0;
    }
    EXPECT_GE(files, 4);
    nodes.ranks.barrier().wait();
  }
}

TEST(PrivateMemory, WhatSomebodyElsePlantedIsNeitherUsedNorChanged) {
  struct Planted {
    const char* what;
    std::function<void(const std::string& path)> plant;
  };
  const auto make = [](const std::string& path, mode_t mode) {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/decoy") << "stays";
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  };
  std::vector<Planted> all = {
      {"open to all", [&](const std::string& path) { make(path, 0777); }},
      {"readable by all", [&](const std::string& path) { make(path, 0755); }},
      {"of a group", [&](const std::string& path) { make(path, 0730); }},
      {"a link",
       [&](const std::string& path) {
         make(path + "-elsewhere", 0700);
         std::filesystem::create_symlink(path + "-elsewhere", path);
       }},
      {"a file", [](const std::string& path) { std::ofstream(path) << "no folder"; }},
  };
  if (is_root()) {
    all.push_back({"of another user", [&](const std::string& path) {
                     make(path, 0700);
                     ASSERT_EQ(::chown(path.c_str(), kAnotherUser, kAnotherUser), 0);
                   }});
  }
  for (const Planted& planted : all) {
    for (const bool inner : {false, true}) {
      SCOPED_TRACE(std::string(planted.what) + (inner ? ", inner" : ", outer"));
      const Nodes nodes(apart());
      const std::string path = inner ? nodes.snapshots().folder() : of_user(nodes);
      const std::string named = nodes.ranks.all_gather_bytes(path).back();
      change(nodes, [&] {
        if (inner) {
          std::filesystem::create_directories(of_user(nodes));
          ::chmod(of_user(nodes).c_str(), 0700);
        }
        planted.plant(path);
      });
      const int before = is_odd(nodes) ? mode_of(path) : 0;
      expect_refused(nodes, named);
      if (is_odd(nodes)) {
        EXPECT_EQ(mode_of(path), before);
        if (std::filesystem::is_directory(path)) {
          EXPECT_TRUE(snapshot::exists(path + "/decoy"));
          EXPECT_EQ(snapshot::names_in(path).size(), 1U);
        }
      }
    }
  }
}

TEST(PrivateMemory, AFolderThatWasWidenedIsNotReadAgain) {
  for (const bool inner : {false, true}) {
    const Nodes nodes(apart());
    save_one(nodes, 5);
    const std::string path = inner ? nodes.snapshots().folder() : of_user(nodes);
    change(nodes, [&] { ::chmod(path.c_str(), 0770); });
    std::vector<std::string> notes;
    EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
    EXPECT_THAT(notes, ElementsAre(HasSubstr("lockstep.memory-")));
    change(nodes, [&] { ::chmod(path.c_str(), 0700); });
    notes.clear();
    const auto found = nodes.snapshots().newest(-1, notes);
    ASSERT_TRUE(found);
    expect_whole(nodes, *found, 5);
  }
}

TEST(PrivateMemory, AFolderThatIsWidenedBetweenTwoSavesEndsThem) {
  const Nodes nodes(apart());
  MemorySnapshots snapshots = nodes.snapshots();
  snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
  nodes.save(snapshots, 5);
  change(nodes, [&] { ::chmod(snapshots.folder().c_str(), 0777); });
  nodes.begin_save(snapshots, 6);
  const auto report = snapshots.wait();
  ASSERT_TRUE(report);
  ASSERT_TRUE(report->error);
  EXPECT_THAT(*report->error, HasSubstr("lockstep.memory-"));
  snapshots.remove();
  nodes.ranks.barrier().wait();
  EXPECT_EQ(snapshot::exists(snapshots.folder() + "/step-000000000005"), is_odd(nodes));
}

TEST(PrivateMemory, FilesThatAreLinksOrOfAnotherUserAreNotRead) {
  std::vector<std::function<void(const std::string&)>> changes = {
      [](const std::string& file) {
        std::filesystem::rename(file, file + ".real");
        std::filesystem::create_symlink(file + ".real", file);
      },
      [](const std::string& file) {
        std::filesystem::remove(file);
        ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
      }};
  if (is_root()) {
    changes.emplace_back([](const std::string& file) {
      ASSERT_EQ(::chown(file.c_str(), kAnotherUser, kAnotherUser), 0);
    });
  }
  for (const auto& change_file : changes) {
    for (const std::string name : {"manifest.json", ".safetensors", "token"}) {
      SCOPED_TRACE(name);
      const Nodes nodes(apart());
      save_one(nodes, 5);
      const std::string folder = nodes.snapshots().folder();
      change(nodes, [&] {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
          const std::string path = entry.path();
          if (path.size() > name.size() &&
              path.compare(path.size() - name.size(), name.size(), name) == 0) {
            return change_file(path);
          }
        }
        ADD_FAILURE() << "no such file";
      });
      std::vector<std::string> notes;
      EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
      EXPECT_THAT(notes, ElementsAre(HasSubstr("lockstep.memory-")));
    }
  }
}

/// A run of the same name in another folder saved update 6 with other values. `attack` puts it in
/// the place of this run's.
TEST(PrivateMemory, ASnapshotThatTheRunDidNotSignIsNotUsed) {
  const auto exchange = [](const std::string& own, const std::string& foreign) {
    std::filesystem::remove_all(own);
    std::filesystem::copy(foreign, own, std::filesystem::copy_options::recursive);
  };
  const std::vector<std::function<void(const std::string& own, const std::string& foreign)>>
      attacks = {exchange,
                 [&](const std::string& own, const std::string& foreign) {
                   exchange(own, foreign);
                   std::filesystem::remove(own + "/manifest.signature");
                 },
                 [&](const std::string& own, const std::string& foreign) {
                   std::filesystem::rename(own + "/manifest.signature", own + ".kept");
                   exchange(own, foreign);
                   std::filesystem::remove(own + "/manifest.signature");
                   std::filesystem::rename(own + ".kept", own + "/manifest.signature");
                 }};
  for (const bool on_all_nodes : {false, true}) {
    for (const auto& attack : attacks) {
      const Nodes nodes(apart());
      MemorySnapshots own = nodes.snapshots();
      own.open("run-a", 0, /*min_shard_bytes=*/1);
      nodes.save(own, 5);
      nodes.save(own, 6);
      std::filesystem::create_directories(nodes.root + "/other");
      MemorySnapshots foreign(detail::Agreement(nodes.ranks, ExitCode::snapshot), nodes.memory(),
                              nodes.root + "/other");
      foreign.open("run-a", 0, /*min_shard_bytes=*/1);
      nodes.save(foreign, 6, /*base=*/77);
      nodes.ranks.barrier().wait();
      if (on_all_nodes || is_odd(nodes)) {
        const std::string name = "/step-000000000006";
        attack(own.folder() + name, foreign.folder() + name);
      }
      nodes.ranks.barrier().wait();
      std::vector<std::string> notes;
      const auto found = nodes.snapshots().newest(-1, notes);
      ASSERT_TRUE(found);
      expect_whole(nodes, *found, 5);
      EXPECT_THAT(notes, ElementsAre(HasSubstr("step-000000000006")));
      if (on_all_nodes) {
        EXPECT_THAT(notes, ElementsAre(HasSubstr("manifest.signature")));
      }
    }
  }
}

TEST(PrivateMemory, ARunFolderWhoseKeyIsGoneHasNoSnapshotsInMemory) {
  const Nodes nodes(apart());
  save_one(nodes, 5);
  change(nodes, [&] { std::filesystem::remove(nodes.root + "/run/memory.key"); });
  std::vector<std::string> notes;
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("the key in " + nodes.root + "/run is gone")));
  save_one(nodes, 6);
  notes.clear();
  const auto found = nodes.snapshots().newest(-1, notes);
  ASSERT_TRUE(found);
  expect_whole(nodes, *found, 6);
}

TEST(PrivateMemory, AKeyThatOthersCouldReadEndsThem) {
  const Nodes nodes(apart());
  save_one(nodes, 5);
  const std::string key = nodes.root + "/run/memory.key";
  change(nodes, [&] { ::chmod(key.c_str(), 0644); });
  std::vector<std::string> notes;
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  EXPECT_THAT(notes, ElementsAre(HasSubstr(key)));
  MemorySnapshots snapshots = nodes.snapshots();
  const std::string text = error_of([&] { snapshots.open("run-a", 100, /*min_shard_bytes=*/1); });
  EXPECT_THAT(text, HasSubstr(key));
  EXPECT_EQ(nodes.ranks.all_gather_bytes(text)[0], text);
}

TEST(PrivateMemory, APlaceThatOthersCanRenameIsRefused) {
  const auto open = [](const Nodes& nodes) { save_one(nodes, 5); };
  const struct {
    mode_t parent, place;
    bool refused;
  } cases[] = {
      {0755, 0755, false}, {0700, 0700, false}, {0755, 01777, false}, {01777, 0755, false},
      {0755, 0777, true},  {0777, 0755, true},  {0777, 01777, true},
  };
  for (const auto& [parent, place, refused] : cases) {
    SCOPED_TRACE(std::to_string(parent) + " " + std::to_string(place));
    const Nodes nodes(apart());
    ::chmod(nodes.memory().c_str(), 0755);
    change(nodes, [&, &mode = parent, &own = place] {
      ::chmod(nodes.root.c_str(), mode);
      ::chmod(nodes.memory().c_str(), own);
    });
    if (refused) {
      expect_refused(nodes, nodes.root);
    } else {
      EXPECT_NO_THROW(open(nodes));
    }
    nodes.ranks.barrier().wait();
  }
  if (is_root()) {
    const Nodes nodes(apart());
    change(nodes, [&] { ::chown(nodes.memory().c_str(), kAnotherUser, kAnotherUser); });
    expect_refused(nodes, nodes.ranks.all_gather_bytes(nodes.memory()).back());
    nodes.ranks.barrier().wait();
  }
}

TEST(PrivateMemory, ALinkToThePlaceIsFollowedOnce) {
  const Nodes nodes(apart());
  const std::string link = nodes.memory() + "-link";
  std::filesystem::create_directory_symlink(nodes.memory(), link);
  const MemorySnapshots snapshots(detail::Agreement(nodes.ranks, ExitCode::snapshot), link,
                                  nodes.root + "/run");
  EXPECT_THAT(snapshots.folder(), HasSubstr(nodes.memory() + "/lockstep.memory-"));
  nodes.ranks.barrier().wait();
}

}  // namespace
}  // namespace lockstep
