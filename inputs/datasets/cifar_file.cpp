#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/cifar_file.h>
#include <lockstep/inputs/datasets/files/file_bytes.h>

namespace lockstep {
namespace {

constexpr int64_t pixels = int64_t{3} * 32 * 32;

void check_labels(const detail::FileBytes& file, const std::vector<int>& classes, int64_t record) {
  for (size_t start = 0; start < file.size(); start += static_cast<size_t>(record)) {
    for (size_t i = 0; i < classes.size(); ++i) {
      const int label = file.data()[start + i];
      file.check(label < classes[i], start + i, "label ", label, ", expected one below ",
                 classes[i]);
    }
  }
}

/// `classes`: the number of classes of each label byte of a record; the last byte is the label.
LabelledImages read_records(const std::vector<std::string>& paths,
                            const std::vector<int>& classes) {
  LOCKSTEP_CHECK_CODE(!paths.empty(), ExitCode::data, "no CIFAR file was given");
  const auto labels = static_cast<int64_t>(classes.size());
  const int64_t record = labels + pixels;
  std::vector<at::Tensor> records;
  for (const std::string& path : paths) {
    const detail::FileBytes file(path);
    const auto size = static_cast<int64_t>(file.size());
    file.check(size % record == 0, file.size(), "the file ends ", size % record,
               " bytes into a record, expected records of ", record, " bytes");
    check_labels(file, classes, record);
    const auto bytes = file.share();
    records.push_back(at::from_blob(
        bytes->data(), {size / record, record}, [bytes](void*) {}, at::kByte));
  }
  const at::Tensor all = at::cat(records);
  return {all.narrow(1, labels, pixels).contiguous().view({-1, 3, 32, 32}),
          all.select(1, labels - 1).to(at::kLong)};
}

}  // namespace

LabelledImages read_cifar10(const std::vector<std::string>& paths) {
  return read_records(paths, {10});
}

LabelledImages read_cifar100(const std::vector<std::string>& paths) {
  return read_records(paths, {20, 100});
}

}  // namespace lockstep
