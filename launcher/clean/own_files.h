#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launcher {

// Folders and files of this user, opened one inside the other so that a link is never followed.

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

/// Null if it cannot be opened.
Folder open_folder(const std::string& path);

/// A folder of this user and no link; null for others.
Folder open_own_folder(const Folder& parent, const std::string& name);

/// All but "." and ".."; none of a null folder.
std::vector<std::string> names_in(const Folder& folder);

/// What is known of an entry itself, not of what it links to; nothing for one of another user.
std::optional<struct stat> own_entry(const Folder& folder, const std::string& name);

/// A regular file of this user that has no other name.
std::optional<struct stat> own_file(const Folder& folder, const std::string& name);

/// `flags`: AT_REMOVEDIR for a folder.
bool unlink_in(const Folder& folder, const std::string& name, int flags = 0);

}  // namespace lockstep::launcher
