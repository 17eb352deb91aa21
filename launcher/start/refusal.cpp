#include "start/refusal.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

#include "rank/exit_codes.h"
#include "start/nearest_name.h"

namespace lockstep::launcher {
namespace {

bool begins_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

/// CLI11 begins with the long name of an option, also where the short one was typed.
std::string with_typed_name(std::string text, const CLI::App& command,
                            const std::vector<std::string>& typed) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const auto is_typed = [&](const std::string& form) {
      return std::any_of(typed.begin(), typed.end(),
                         [&](const std::string& word) { return begins_with(word, form); });
    };
    if (!begins_with(text, name + ":") || is_typed(name)) {
      continue;
    }
    for (const std::string& letter : option->get_snames()) {
      if (is_typed("-" + letter)) {
        return "-" + letter + text.substr(name.size());
      }
    }
  }
  return text;
}

}  // namespace

std::string no_such_option(const CLI::App& command, const std::string& option) {
  return command.get_name() + " has no option " + option +
         did_you_mean(option.substr(0, option.find('=')), options_of(command));
}

int end_of_parsing(const CLI::App& app, const CLI::ParseError& error,
                   const std::vector<std::string>& typed) {
  if (error.get_exit_code() == 0) {
    return app.exit(error);
  }
  const auto parsed = app.get_subcommands();
  const CLI::App& command = parsed.empty() ? app : *parsed.front();
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  std::string text = (parsed.empty() ? "" : command.get_name() + ": ") +
                     with_typed_name(error.what(), command, typed);
  if (!rest.empty() && begins_with(rest.front(), "-")) {
    text = no_such_option(command, rest.front());
  } else if (!rest.empty() && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    text = command.get_name() + " takes no argument " + rest.front();
  }
  std::cerr << "lockstep: " << text << "; see lockstep "
            << (parsed.empty() ? "" : command.get_name() + " ") << "--help\n";
  return exit_usage;
}

}  // namespace lockstep::launcher
