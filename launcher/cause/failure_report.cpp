#include "cause/failure_report.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

namespace lockstep::launcher {
namespace {

std::string now() {
  const std::time_t time = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&time));
  return text;
}

nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

}  // namespace

std::string FailureReport::render() const {
  nlohmann::ordered_json json;
  json["attempt"] = attempt;
  json["code"] = cause.code;
  json["cause"] = cause.headline;
  json["ranks"] = cause.ranks;
  json["rank"] = nullptr;
  json["host"] = nullptr;
  json["signal"] = nullptr;
  if (!cause.ranks.empty()) {
    const int rank = cause.ranks.front();
    const RankRecord& record = (*ranks)[rank];
    const int code = record.was_asked ? 0 : record.code.value_or(0);  // not the launcher's signal
    const char* signal = code > 128 ? sigabbrev_np(code - 128) : nullptr;
    json["rank"] = rank;
    json["host"] = text_or_null(record.host);
    json["signal"] = text_or_null(signal == nullptr ? "" : std::string("SIG") + signal);
  }
  json["last_lines"] = cause.said ? output->last_lines(*cause.said) : std::vector<std::string>();
  json["snapshot"] = text_or_null(ranks->snapshot());
  json["command"] = command;
  json["time"] = now();
  json["restarted"] = is_restarted;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_report(const std::string& path, const FailureReport& report) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary);
  file << report.render() << std::flush;
  const bool written = static_cast<bool>(file);
  file.close();
  if (!written || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::cerr << "lockstep: cannot write " << path << ": " << std::strerror(errno) << "\n";
  }
}

}  // namespace lockstep::launcher
