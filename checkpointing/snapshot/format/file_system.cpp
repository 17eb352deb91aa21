#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/descriptor.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

namespace lockstep::snapshot {
namespace {

[[noreturn]] void fail(const std::string& path, const char* doing) {
  const int reason = errno;
  reject(
      path, "cannot ", doing, ": ", std::strerror(reason),
      reason == ENOSPC || reason == EDQUOT ? "; free some space, the run itself is unharmed" : "");
}

using lockstep::detail::Descriptor;

Descriptor open_new_file(const std::string& path, mode_t mode) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.is_open()) {
    fail(path, "create the file");
  }
  if (mode == kPrivateFileMode && ::fchmod(file.number(), mode) != 0) {
    fail(path, "set the mode of the file");
  }
  return file;
}

class RealFile : public OutputFile {
 public:
  RealFile(std::string path, mode_t mode)
      : path_(std::move(path)), file_(open_new_file(path_, mode)) {}

  void write(const void* data, size_t bytes) override {
    constexpr size_t kLargestCall = size_t{1} << 30;
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file_.number(), next, std::min(bytes, kLargestCall));
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        fail(path_, "write");
      }
      next += written;
      bytes -= static_cast<size_t>(written);
    }
  }

  void sync() override {
    if (::fsync(file_.number()) != 0) {
      fail(path_, "bring the file to the disk (fsync)");
    }
  }

  void close() override {
    if (::close(file_.release()) != 0) {
      fail(path_, "close the file");
    }
  }

 private:
  std::string path_;
  Descriptor file_;
};

class RealFileSystem : public FileSystem {
 public:
  void make_folder(const std::string& path) override {
    for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
      make_one(path.substr(0, end));
    }
    make_one(path);
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
      reject(path, "is needed as a folder, but it is something else");
    }
  }

  std::unique_ptr<OutputFile> create_file(const std::string& path, mode_t mode) override {
    return std::make_unique<RealFile>(path, mode);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      fail(from, ("rename it to " + to).c_str());
    }
  }

  void sync_folder(const std::string& path) override {
    const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.is_open()) {
      fail(path, "open the folder");
    }
    if (::fsync(folder.number()) != 0) {
      fail(path, "bring the folder to the disk (fsync)");
    }
  }

  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) {
      fail(path, "remove the file");
    }
  }

  void remove_folder(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) {
      fail(path, "remove the folder");
    }
  }

 private:
  static void make_one(const std::string& path) {
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
      fail(path, "make the folder");
    }
  }
};

std::shared_ptr<FileSystem>& of_scope() {
  static std::shared_ptr<FileSystem> files;
  return files;
}

}  // namespace

std::shared_ptr<FileSystem> FileSystem::real() {
  return std::make_shared<RealFileSystem>();
}

std::shared_ptr<FileSystem> FileSystem::current() {
  return of_scope() ? of_scope() : real();
}

FileSystemScope::FileSystemScope(std::shared_ptr<FileSystem> files)
    : before_(std::exchange(of_scope(), std::move(files))) {}

FileSystemScope::~FileSystemScope() {
  of_scope() = std::move(before_);
}

std::string absolute_path(const std::string& path) {
  if (path.empty()) {
    return path;
  }
  std::string whole = std::filesystem::absolute(path).lexically_normal().string();
  while (whole.size() > 1 && whole.back() == '/') {
    whole.pop_back();
  }
  return whole;
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* entries = ::opendir(folder.c_str());
  if (entries == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return names;
    }
    fail(folder, "read the folder");
  }
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
  ::closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

void remove_folder_of_files(FileSystem& files, const std::string& folder) {
  std::optional<Error> failure;
  for (const std::string& name : names_in(folder)) {
    try {
      files.remove_file(folder + "/" + name);
    } catch (const Error& error) {
      if (!failure) {
        failure = error;
      }
    }
  }
  if (failure) {
    throw Error(*failure);
  }
  files.remove_folder(folder);
}

void write_file(FileSystem& files, const std::string& path, const std::string& content,
                mode_t mode) {
  const auto file = files.create_file(path, mode);
  file->write(content.data(), content.size());
  file->sync();
  file->close();
}

void replace_file(FileSystem& files, const std::string& path, const std::string& content,
                  mode_t mode) {
  const std::string temporary = path + ".part";
  remove_if_there(files, temporary);
  write_file(files, temporary, content, mode);
  files.rename(temporary, path);
}

void remove_if_there(FileSystem& files, const std::string& path) {
  if (exists(path)) {
    files.remove_file(path);
  }
}

}  // namespace lockstep::snapshot
