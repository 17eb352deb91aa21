#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::launcher {

/// Asks all hosts at the same time by `command(host)`, which starts any program under `lockstep
/// exec-rank` there, and waits at most `seconds`. Returns the own name of each host that answers,
/// by the name in `hosts`. Kills processes that do not end in time.
std::map<std::string, std::string> ask_hosts(
    const std::vector<std::string>& hosts,
    const std::function<std::vector<std::string>(const std::string& host)>& command, int seconds);

}  // namespace lockstep::launcher
