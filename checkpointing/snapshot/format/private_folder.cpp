#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/private_folder.h>
#include <lockstep/collectives/impl/descriptor.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace lockstep::snapshot {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kOfOthers = 0077;

template <typename... Parts>
[[noreturn]] void refuse(const std::string& path, const Parts&... parts) {
  reject(path, parts...,
         ". Remove it if it is yours, or name another SnapshotOptions::memory_folder: snapshots in "
         "memory are kept only where no other user can read or change them");
}

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

/// In a rootless container the root of the machine has the number of unknown users.
bool is_root(uid_t owner) {
  static const uid_t unknown = [] {
    uint64_t inside = 0;
    uint64_t outside = 0;
    uint64_t count = 0;
    std::ifstream("/proc/self/uid_map") >> inside >> outside >> count;
    uint64_t overflow = 0;
    std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
    const bool knows_all = inside == 0 && outside == 0 && count == 0xffffffffU;
    return static_cast<uid_t>(knows_all ? 0 : overflow);
  }();
  return owner == 0 || owner == unknown;
}

using lockstep::detail::Descriptor;

void require_own(const std::string& path, const struct stat& status) {
  if (status.st_uid != ::geteuid()) {
    refuse(path, "belongs to user ", status.st_uid, ", but this job runs as user ", ::geteuid());
  }
}

/// `folder`: descriptor of the open folder `path`.
void require_own_content(int folder, const std::string& path) {
  const int readable = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = readable < 0 ? nullptr : ::fdopendir(readable);
  if (entries == nullptr) {
    refuse(path, "cannot be read: ", std::strerror(errno));
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> closes(entries, &::closedir);
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    struct stat status {};
    if (name == "." || name == ".." ||
        ::fstatat(readable, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;  // gone meanwhile
    }
    const std::string inner = path + "/" + name;
    require_own(inner, status);
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
      refuse(inner, "is neither a regular file nor a folder");
    }
    if (S_ISDIR(status.st_mode)) {
      const Descriptor below(
          ::openat(readable, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (below.number() >= 0) {
        require_own_content(below.number(), inner);
      }
    }
  }
}

}  // namespace

/// Walks from the root to the folder and checks each level; one folder is open at a time.
class PrivateFolder::Walk {
 public:
  explicit Walk(const PrivateFolder& folder)
      : folder_(folder), at_(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    check(/*is_private=*/false);
  }

  bool is_at_end() const { return depth_ == folder_.names_.size(); }
  int number() const { return at_.number(); }
  /// Goes one level down. False if that folder is missing and `makes` is false.
  bool advance(bool makes) {
    const std::string& name = folder_.names_[depth_];
    path_ += "/" + name;
    Descriptor next = open(name);
    if (next.number() < 0 && errno == ENOENT) {
      if (!makes) {
        return false;
      }
      make(name);
      next = open(name);
    }
    if (next.number() < 0) {
      refuse(path_, errno == ENOTDIR || errno == ELOOP ? "is a link or a file, and no folder"
                                                       : std::strerror(errno));
    }
    at_ = std::move(next);
    check(depth_++ >= folder_.shared_);
    return true;
  }

 private:
  Descriptor open(const std::string& name) const {
    return Descriptor(
        ::openat(at_.number(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }

  void make(const std::string& name) const {
    const bool is_new = ::mkdirat(at_.number(), name.c_str(), kFolderMode) == 0;
    if ((!is_new && errno != EEXIST) ||
        (is_new && ::fchmodat(at_.number(), name.c_str(), kFolderMode, 0) != 0)) {
      refuse(path_, "cannot be made: ", std::strerror(errno));
    }
  }

  void check(bool is_private) {
    struct stat status {};
    if (::fstat(at_.number(), &status) != 0) {
      refuse(path_ + "/", std::strerror(errno));
    }
    const mode_t mode = status.st_mode;
    if (is_private) {
      require_own(path_, status);
      if ((mode & kOfOthers) != 0) {
        refuse(path_, "has the mode ", octal(mode), ", which has rights for other users; expected ",
               octal(kFolderMode));
      }
      return;
    }
    if (!is_root(status.st_uid)) {
      require_own(path_ + "/", status);
    }
    // Below a closed folder group rights do not matter; the group is often the user's own.
    const mode_t writes = is_closed_ ? S_IWOTH : S_IWGRP | S_IWOTH;
    if ((mode & writes) != 0 && (mode & S_ISVTX) == 0) {
      refuse(path_ + "/", "has the mode ", octal(mode),
             ", so other users can rename what is in it (chmod go-w changes that)");
    }
    is_closed_ = is_closed_ || (status.st_uid == ::geteuid() && (mode & kOfOthers) == 0);
  }

  const PrivateFolder& folder_;
  Descriptor at_;
  std::string path_;
  size_t depth_ = 0;
  bool is_closed_ = false;  // a folder above is closed to other users
};

/// Other users cannot change what is in the folder between the check and the call.
class PrivateFolder::Files : public FileSystem {
 public:
  explicit Files(PrivateFolder folder) : folder_(std::move(folder)) {}

  void make_folder(const std::string& path) override {
    folder_.make();
    inner_->make_folder(path);
    close_to_others(path, kFolderMode);
  }
  std::unique_ptr<OutputFile> create_file(const std::string& path, mode_t mode) override {
    folder_.check();
    return inner_->create_file(path, mode & kPrivateFileMode);
  }
  void rename(const std::string& from, const std::string& to) override {
    folder_.check();
    inner_->rename(from, to);
  }
  void sync_folder(const std::string& path) override { inner_->sync_folder(path); }
  void remove_file(const std::string& path) override {
    folder_.check();
    inner_->remove_file(path);
  }
  void remove_folder(const std::string& path) override {
    folder_.check();
    inner_->remove_folder(path);
  }

  static void close_to_others(const std::string& path, mode_t mode) {
    if (::chmod(path.c_str(), mode) != 0) {
      refuse(path, "cannot be closed to other users: ", std::strerror(errno));
    }
  }

 private:
  PrivateFolder folder_;
  std::shared_ptr<FileSystem> inner_ = FileSystem::current();
};

PrivateFolder::PrivateFolder(const std::string& shared, std::vector<std::string> levels) {
  std::error_code unreachable;  // check() throws then
  const std::string given = absolute_path(shared);
  const std::filesystem::path real = std::filesystem::weakly_canonical(given, unreachable);
  path_ = unreachable ? given : absolute_path(real.string());
  for (const auto& name : std::filesystem::path(path_).relative_path()) {
    names_.push_back(name.string());
  }
  shared_ = names_.size();
  for (std::string& level : levels) {
    path_ += (path_ == "/" ? "" : "/") + level;
    names_.push_back(std::move(level));
  }
}

void PrivateFolder::make() const {
  Walk walk(*this);
  while (!walk.is_at_end()) {
    walk.advance(/*makes=*/true);
  }
}

void PrivateFolder::check() const {
  Walk walk(*this);
  while (!walk.is_at_end() && walk.advance(/*makes=*/false)) {
  }
}

void PrivateFolder::check_content() const {
  Walk walk(*this);
  while (!walk.is_at_end()) {
    if (!walk.advance(/*makes=*/false)) {
      return;
    }
  }
  require_own_content(walk.number(), path_);
}

void PrivateFolder::close_to_others(const std::string& file) const {
  Files::close_to_others(path_ + "/" + file, kPrivateFileMode);
}

std::shared_ptr<FileSystem> PrivateFolder::files() const {
  return std::make_shared<Files>(*this);
}

}  // namespace lockstep::snapshot
