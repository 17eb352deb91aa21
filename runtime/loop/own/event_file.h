#pragma once

#include <lockstep/runtime/trainer/impl/log_file.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::detail {

/// A TensorBoard event file: TFRecords, each with an Event of tensorflow/core/util/event.proto.
/// Only what scalars need is encoded. Ranks: local. Threads: one.
class EventFile {
 public:
  /// Makes a new file in `folder` whose name sorts behind those of the event files there, since
  /// TensorBoard reads them in that order. Throws Error with path and reason.
  explicit EventFile(const std::string& folder);

  /// Makes TensorBoard drop values of earlier files in the folder for `step` and later steps.
  void start_at(int64_t step, double time);
  void add(int64_t step, double time, const LogValues& values);

 private:
  LogFile file_;
};

/// `data` as a TFRecord: its length, a check sum of the length, the data, a check sum of the data.
std::string tf_record(const std::string& data);
/// CRC-32C in the form of TFRecords: rotated, plus a constant.
uint32_t masked_crc32c(std::string_view data);

}  // namespace lockstep::detail
