#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// How one run of the lockstep command ended.
struct Launched {
  int code = 0;  // 128 + n if the command itself was killed by signal n
  std::string out;
  std::string error;
  double seconds = 0.0;
};

/// Runs `lockstep ARGUMENTS`. `meanwhile`, if any, is called after each piece of output with all
/// of standard output so far, and with the command's process id, to send signals to.
/// A run that takes longer than 60 s is killed and fails the test.
Launched launch(const std::vector<std::string>& arguments,
                const std::function<void(pid_t, const std::string& out)>& meanwhile = {});

/// `lockstep run OPTIONS -- /bin/sh -c SCRIPT`; $RANK is the rank in it.
std::vector<std::string> script(std::vector<std::string> options, const std::string& text);

/// The same with a program that gives life signs as a Runtime does: `sign s`.
std::vector<std::string> signing(std::vector<std::string> options, const std::string& text);

/// Processes whose command line contains `text`.
int processes_with(const std::string& text);

/// Waits until there is none: a process that was killed may take a moment to be gone. False after
/// 30 s.
bool all_gone(const std::string& text);

/// Shell text that waits until all these files are there.
std::string await(const std::vector<std::string>& files);

/// A text that no other process has in its command line.
std::string unique_word();

/// A folder that is gone at the end of the test.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string read(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace lockstep::testing
