// What a job shows on a terminal: lines that are redrawn in place.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cause/job_output.h"
#include "launch.h"
#include "rank/terminal_columns.h"

namespace lockstep::testing {
namespace {

using launcher::fit_columns;
using launcher::JobOutput;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;
using Kind = launcher::RankLine::Kind;

/// A program on a terminal whose size the test changes.
class Terminal {
 public:
  Terminal(int columns, const std::vector<std::string>& arguments) {
    termios raw = {};
    cfmakeraw(&raw);
    const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
    int other = -1;
    EXPECT_EQ(openpty(&terminal_, &other, nullptr, &raw, &size), 0);
    fcntl(terminal_, F_SETFD, FD_CLOEXEC);
    std::vector<char*> argv;
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open("/dev/null", O_RDWR), STDIN_FILENO);
      dup2(STDIN_FILENO, STDERR_FILENO);
      dup2(other, STDOUT_FILENO);
      close(other);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(other);
  }
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(terminal_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void resize(int columns) const {
    const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
    EXPECT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }
  /// What the next row that is drawn holds; empty at the end.
  std::string next() {
    const std::string clear = "\x1b[K";
    while (true) {
      const size_t end = text_.find_first_of("\r\n", text_.rfind(clear, 0) == 0 ? 3 : 0);
      if (end != std::string::npos) {
        std::string row = text_.substr(0, end);
        text_.erase(0, end + 1);
        row.erase(0, row.rfind(clear, 0) == 0 ? clear.size() : 0);
        if (!row.empty()) {
          return row;
        }
        continue;
      }
      pollfd watched = {terminal_, POLLIN, 0};
      char bytes[4096];
      const ssize_t size = poll(&watched, 1, 60000) == 1 ? read(terminal_, bytes, sizeof bytes) : 0;
      if (size <= 0) {
        return "";
      }
      text_.append(bytes, static_cast<size_t>(size));
    }
  }
  int wait() {
    while (!next().empty()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string text_;
};

/// `lockstep run` with this number of ranks; 0: mpirun with one.
class ProgressOnATerminal : public ::testing::TestWithParam<int> {
 protected:
  std::vector<std::string> command(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> all = {LOCKSTEP_COMMAND, "run", "-n", std::to_string(GetParam())};
    if (GetParam() == 0) {
      setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", /*overwrite=*/1);
      setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", /*overwrite=*/1);
      all = {"mpirun", "-n", "1"};
    }
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"--", LOCKSTEP_PROGRESS_PROGRAM, stop_});
    return all;
  }
  void expect_end(Terminal& terminal) const {
    std::ofstream(stop_) << "";
    EXPECT_EQ(terminal.wait(), 0);
    std::filesystem::remove(stop_);
  }
  /// The next rows, until each rank has drawn so many; none has more than `columns`.
  void expect_rows(Terminal& terminal, int columns) const {
    std::map<char, int> drawn;
    while (drawn['0'] < 10 || (GetParam() > 1 && drawn['1'] < 10)) {
      const std::string row = terminal.next();
      ASSERT_NE(row, "");
      ASSERT_THAT(row, SizeIs(Le(static_cast<size_t>(columns)))) << row;
      ++drawn[row.size() > 1 && row[0] == '[' ? row[1] : '0'];
    }
  }
  Folder folder_;
  const std::string stop_ = folder_.path() + "/stop";
};

TEST_P(ProgressOnATerminal, FitsWithItsTagFromTheFirstRowOn) {
  const std::string tag = GetParam() > 0 ? "] " : "";
  for (const int columns : {40, 80, 120}) {
    Terminal terminal(columns, command());
    const std::string first = terminal.next();
    EXPECT_THAT(first, SizeIs(columns - 1)) << first;
    EXPECT_THAT(first, HasSubstr(tag + "train   0%"));
    expect_rows(terminal, columns);
    expect_end(terminal);
  }
}

TEST_P(ProgressOnATerminal, FitsWithoutATag) {
  if (GetParam() == 0) {
    return;  // mpirun has none
  }
  Terminal terminal(60, command({"--no-tag"}));
  EXPECT_THAT(terminal.next(), SizeIs(59));
  expect_end(terminal);
}

TEST_P(ProgressOnATerminal, FollowsASizeThatChanges) {
  Terminal terminal(80, command());
  expect_rows(terminal, 80);
  for (const int columns : {40, 120, 50, 51, 10, 80}) {
    terminal.resize(columns);
    // Rows that were drawn before may be on their way.
    for (std::string row = terminal.next(); row.size() != static_cast<size_t>(columns - 1);
         row = terminal.next()) {
      ASSERT_NE(row, "");
    }
    expect_rows(terminal, columns);
  }
  expect_end(terminal);
}

INSTANTIATE_TEST_SUITE_P(Of, ProgressOnATerminal, ::testing::Values(0, 1, 2),
                         [](const auto& info) { return std::to_string(info.param) + "Ranks"; });

TEST(RedrawnLines, OfAnyProgramAndStreamAreCutToTheTerminal) {
  for (const std::string stream : {"", " >&2"}) {
    std::vector<std::string> command = script(
        {"-n", "1"}, "{ for i in 1 2 3 4; do printf '\\r%050d' $i; done; printf '\\n'; }" + stream);
    command.insert(command.begin(), LOCKSTEP_COMMAND);
    Terminal terminal(30, command);
    EXPECT_EQ(terminal.next(), "[0] " + std::string(25, '0')) << stream;
    terminal.wait();
  }
}

TEST(RedrawnLines, AreAsWideAsTheTerminalIsThen) {
  std::ostringstream out;
  int columns = 20;
  JobOutput output(out, out, {true, true, "", {}, false, [&] { return columns; }});
  const std::string text(2100, 'x');
  output.add({12, Kind::partial, text});
  output.add({12, Kind::redraw, text});
  EXPECT_EQ(out.str(), "[12] " + std::string(14, 'x'));
  out.str("");
  columns = 1;
  output.add({12, Kind::redraw, "ab"});
  EXPECT_EQ(out.str(), "\r\x1b[K");
  out.str("");
  output.add({12, Kind::line, "a whole line is never cut"});
  EXPECT_EQ(out.str(), "\r\x1b[K[12] a whole line is never cut\n");
}

TEST(RedrawnLines, AreCutBetweenCharactersAndKeepTheirColours) {
  EXPECT_EQ(fit_columns("abcdef", 4), "abcd");
  EXPECT_EQ(fit_columns("abcd", 4), "abcd");
  EXPECT_EQ(fit_columns("ab", 0), "");
  EXPECT_EQ(fit_columns("", 4), "");
  EXPECT_EQ(fit_columns("\u00fc\u00fc\u00fc", 2), "\u00fc\u00fc");
  EXPECT_EQ(fit_columns("\u8a13\u7df4x", 3), "\u8a13");    // two columns each
  EXPECT_EQ(fit_columns("e\u0301e\u0301", 1), "e\u0301");  // an accent takes none
  EXPECT_EQ(fit_columns("a\tb", 8), "a\t");
  EXPECT_EQ(fit_columns("\x1b[1;32mgreen\x1b[0m", 2), "\x1b[1;32mgr\x1b[0m");
  EXPECT_EQ(fit_columns("\x1b]0;title\aab", 1), "\x1b]0;title\aa");
  EXPECT_EQ(fit_columns("\xff\xfe\xfd", 2), "\xff\xfe");  // no UTF-8
  EXPECT_EQ(fit_columns("a\xc3", 2), "a\xc3");
  EXPECT_EQ(fit_columns("a\x1b", 2), "a\x1b");
  EXPECT_EQ(fit_columns("a\x1b[3", 2), "a\x1b[3");
  EXPECT_EQ(fit_columns(std::string("a\0b", 3), 2), std::string("a\0b", 3));
}

}  // namespace
}  // namespace lockstep::testing
