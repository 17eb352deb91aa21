#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/trainer/impl/log_file.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::detail {

/// A TensorBoard event file: TFRecords, each with an Event of tensorflow/core/util/event.proto.
/// Scalars, texts, histograms and images are encoded. Ranks: local. Threads: one.
class EventFile {
 public:
  /// Makes a new file in `folder` whose name sorts behind those of the event files there, since
  /// TensorBoard reads them in that order. Throws Error with path and reason.
  explicit EventFile(const std::string& folder);

  /// Makes TensorBoard drop values of earlier files in the folder for `step` and later steps.
  void start_at(int64_t step, double time);
  void add(int64_t step, double time, const LogValues& values);
  /// `summary`: a result of the functions below.
  void add(int64_t step, double time, const std::string& summary);

 private:
  LogFile file_;
};

/// A Summary of tensorflow/core/framework/summary.proto with one value. `values`: on the CPU.
std::string text_summary(const std::string& name, const std::string& text);
/// 64 bins of equal width over the finite values, as many of which there are.
std::string histogram_summary(const std::string& name, const at::Tensor& values);
/// `pixels`: uint8, height x width x 3. Written as BMP (Windows bitmap), which needs no library.
std::string image_summary(const std::string& name, const at::Tensor& pixels);

/// `data` as a TFRecord: its length, a check sum of the length, the data, a check sum of the data.
std::string tf_record(const std::string& data);
/// CRC-32C in the form of TFRecords: rotated, plus a constant.
uint32_t masked_crc32c(std::string_view data);

}  // namespace lockstep::detail
