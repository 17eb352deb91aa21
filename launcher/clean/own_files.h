#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launcher {

// Folders and files of this user, opened level by level so that links are never followed.

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

/// Null if it cannot be opened.
Folder open_folder(const std::string& path);

/// Null unless it is a folder of this user and no link.
Folder open_own_folder(const Folder& parent, const std::string& name);

/// All names except "." and ".."; empty for a null folder.
std::vector<std::string> names_in(const Folder& folder);

/// The status of the entry itself (links are not followed); empty if it is another user's.
std::optional<struct stat> own_entry(const Folder& folder, const std::string& name);

/// The same; empty unless it is a regular file of this user without other names.
std::optional<struct stat> own_file(const Folder& folder, const std::string& name);

/// `flags`: AT_REMOVEDIR for a folder.
bool unlink_in(const Folder& folder, const std::string& name, int flags = 0);

}  // namespace lockstep::launcher
