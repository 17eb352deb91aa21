#include "clean/own_files.h"

#include <fcntl.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <unistd.h>

#include <utility>

namespace lockstep::launcher {
namespace {

using detail::Descriptor;

Folder opened(Descriptor descriptor) {
  Folder folder(descriptor.is_open() ? fdopendir(descriptor.number()) : nullptr);
  if (folder) {
    descriptor.release();  // closedir() closes it
  }
  return folder;
}

}  // namespace

Folder open_folder(const std::string& path) {
  return opened(Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
}

Folder open_own_folder(const Folder& parent, const std::string& name) {
  if (!parent) {
    return nullptr;
  }
  Folder folder = opened(Descriptor(
      openat(dirfd(parent.get()), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  struct stat info = {};
  const bool is_own = folder && fstat(dirfd(folder.get()), &info) == 0 && info.st_uid == geteuid();
  return is_own ? std::move(folder) : nullptr;
}

std::vector<std::string> names_in(const Folder& folder) {
  std::vector<std::string> names;
  if (folder) {
    rewinddir(folder.get());
    while (const dirent* entry = readdir(folder.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
    }
  }
  return names;
}

std::optional<struct stat> own_entry(const Folder& folder, const std::string& name) {
  struct stat info = {};
  const bool is_own = fstatat(dirfd(folder.get()), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                      info.st_uid == geteuid();
  return is_own ? std::make_optional(info) : std::nullopt;
}

std::optional<struct stat> own_file(const Folder& folder, const std::string& name) {
  const auto info = own_entry(folder, name);
  return info && S_ISREG(info->st_mode) && info->st_nlink == 1 ? info : std::nullopt;
}

bool unlink_in(const Folder& folder, const std::string& name, int flags) {
  return unlinkat(dirfd(folder.get()), name.c_str(), flags) == 0;
}

}  // namespace lockstep::launcher
