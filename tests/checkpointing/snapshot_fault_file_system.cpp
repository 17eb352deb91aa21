#include "checkpointing/snapshot_fault_file_system.h"

#include <fcntl.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace lockstep::testing {

using snapshot::OutputFile;

namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

bool is_in(const std::string& path, const std::string& folder) {
  return path == folder || path.compare(0, folder.size() + 1, folder + "/") == 0;
}

}  // namespace

void link_run(const std::string& from, const std::string& to) {
  ::mkdir(to.c_str(), 0777);
  for (const std::string& name : snapshot::names_in(from)) {
    const std::string path = from + "/" + name;
    if (::link(path.c_str(), (to + "/" + name).c_str()) != 0) {
      link_run(path, to + "/" + name);  // a folder
    }
  }
}

class FaultFileSystem::File : public OutputFile {
 public:
  File(std::shared_ptr<FaultFileSystem> system, std::string path, std::unique_ptr<OutputFile> real)
      : system_(std::move(system)), path_(std::move(path)), real_(std::move(real)) {}

  void write(const void* data, size_t bytes) override {
    system_->run(
        Call::write, path_, [&] { real_->write(data, bytes); },
        [&] { real_->write(data, bytes / 2); });
  }
  void sync() override {
    system_->run(Call::sync, path_, [&] {
      auto& files = system_->unsynced_files_;
      files.erase(std::remove(files.begin(), files.end(), path_), files.end());
    });
  }
  void close() override {
    system_->run(Call::close, path_, [&] { real_->close(); });
  }

 private:
  std::shared_ptr<FaultFileSystem> system_;
  std::string path_;
  std::unique_ptr<OutputFile> real_;
};

int FaultFileSystem::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void FaultFileSystem::fail_at(int call, int reason) {
  const std::lock_guard lock(mutex_);
  heal();
  fail_at_ = call;
  reason_ = reason;
}

void FaultFileSystem::die_at(int call) {
  const std::lock_guard lock(mutex_);
  heal();
  die_at_ = call;
  reason_ = EIO;
}

void FaultFileSystem::fail_where(std::function<bool(Call, const std::string&)> condition,
                                 int reason) {
  const std::lock_guard lock(mutex_);
  heal();
  condition_ = std::move(condition);
  reason_ = reason;
}

void FaultFileSystem::heal() {
  const std::lock_guard lock(mutex_);
  calls_ = fail_at_ = die_at_ = 0;
  condition_ = nullptr;
}

void FaultFileSystem::run(Call call, const std::string& path, const std::function<void()>& whole,
                          const std::function<void()>& half) {
  const std::lock_guard lock(mutex_);
  ++calls_;
  const bool dies = die_at_ > 0 && calls_ == die_at_;
  if (dies && half) {
    half();
  }
  if (calls_ == fail_at_ || (die_at_ > 0 && calls_ >= die_at_) ||
      (condition_ && condition_(call, path))) {
    snapshot::reject(path, "injected: ", std::strerror(reason_));
  }
  whole();
}

void FaultFileSystem::make_folder(const std::string& path) {
  run(Call::make_folder, path, [&] {
    const bool is_new = !snapshot::exists(path);
    real_->make_folder(path);
    if (is_new) {
      unsynced_names_.push_back({Call::make_folder, path, "", "", false});
    }
  });
}

std::unique_ptr<OutputFile> FaultFileSystem::create_file(const std::string& path, mode_t mode) {
  std::unique_ptr<OutputFile> file;
  run(Call::create, path, [&] {
    file = std::make_unique<File>(shared_from_this(), path, real_->create_file(path, mode));
    unsynced_files_.push_back(path);
    unsynced_names_.push_back({Call::create, path, "", "", false});
  });
  return file;
}

void FaultFileSystem::rename(const std::string& from, const std::string& to) {
  run(Call::rename, from, [&] {
    Change change{Call::rename, to, from, "", snapshot::exists(to)};
    if (change.replaced) {
      change.content = content_of(to);
    }
    real_->rename(from, to);
    moved(from, to);
    unsynced_names_.push_back(change);
  });
}

void FaultFileSystem::sync_folder(const std::string& path) {
  run(Call::sync_folder, path, [&] {
    unsynced_names_.erase(
        std::remove_if(unsynced_names_.begin(), unsynced_names_.end(),
                       [&](const Change& change) { return parent_of(change.path) == path; }),
        unsynced_names_.end());
  });
}

void FaultFileSystem::remove_file(const std::string& path) {
  run(Call::remove, path, [&] {
    Change change{Call::remove, path, "", content_of(path), false};
    real_->remove_file(path);
    unsynced_files_.erase(std::remove(unsynced_files_.begin(), unsynced_files_.end(), path),
                          unsynced_files_.end());
    unsynced_names_.push_back(change);
  });
}

void FaultFileSystem::remove_folder(const std::string& path) {
  run(Call::remove, path, [&] {
    real_->remove_folder(path);
    unsynced_names_.push_back({Call::remove, path, "", "", true});
  });
}

/// What was in a folder is now in another.
void FaultFileSystem::moved(const std::string& from, const std::string& to) {
  const auto follow = [&](std::string& path) {
    if (is_in(path, from)) {
      path = to + path.substr(from.size());
    }
  };
  for (std::string& path : unsynced_files_) {
    follow(path);
  }
  for (Change& change : unsynced_names_) {
    follow(change.path);
    follow(change.from);
  }
}

void FaultFileSystem::undo(const Change& change) {
  switch (change.call) {
    case Call::make_folder:
      ::rmdir(change.path.c_str());
      break;
    case Call::create:
      ::unlink(change.path.c_str());
      break;
    case Call::rename:
      std::rename(change.path.c_str(), change.from.c_str());
      if (change.replaced) {
        put(change.path, change.content);
      }
      moved(change.path, change.from);
      break;
    default:
      if (change.replaced) {
        ::mkdir(change.path.c_str(), 0777);
      } else {
        put(change.path, change.content);
      }
  }
}

void FaultFileSystem::crash(Loss loss) {
  const std::lock_guard lock(mutex_);
  heal();
  if (loss != Loss::nothing) {
    for (const std::string& path : unsynced_files_) {
      put(path, std::string(content_of(path).size(), '\0'));
    }
  }
  while (loss == Loss::names && !unsynced_names_.empty()) {
    const Change last = unsynced_names_.back();
    unsynced_names_.pop_back();
    undo(last);
  }
  unsynced_files_.clear();
  unsynced_names_.clear();
}

}  // namespace lockstep::testing
