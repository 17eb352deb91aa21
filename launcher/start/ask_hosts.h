#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::launcher {

/// Asks all hosts at once, each by `command(host)`, which starts a rank of any program under
/// `lockstep exec-rank` there, and waits for them `seconds` at most. Returns how each host that
/// answers calls itself, by the name it was asked with. Processes that do not end in time are
/// killed.
std::map<std::string, std::string> ask_hosts(
    const std::vector<std::string>& hosts,
    const std::function<std::vector<std::string>(const std::string& host)>& command, int seconds);

}  // namespace lockstep::launcher
