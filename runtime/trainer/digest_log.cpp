#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <lockstep/runtime/trainer/impl/digest_log.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>

namespace lockstep::detail {
namespace {

std::string hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::string digest_text(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kCPU);
  return hexadecimal(digest_of(flat.const_data_ptr(), flat.nbytes()));
}

}  // namespace

DigestLog::DigestLog(const std::string& path, int64_t every, Communicator control)
    : every_(every), control_(std::move(control)) {
  if (control_.rank() == 0) {
    file_.emplace(path);
  }
}

void DigestLog::note_random() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  random_ = digest_of(state.const_data_ptr(), state.nbytes());
}

void DigestLog::note_loss(double loss) {
  MicroBatch& now = micro_batches_.emplace_back();
  std::memcpy(&now.loss, &loss, sizeof(loss));
  now.random = random_;
}

std::vector<DigestLog::MicroBatch> DigestLog::of_all_ranks() const {
  std::vector<MicroBatch> all;
  const std::string mine(reinterpret_cast<const char*>(micro_batches_.data()),
                         micro_batches_.size() * sizeof(MicroBatch));
  for (const std::string& bytes : control_.all_gather_bytes(mine)) {
    std::vector<MicroBatch> some(bytes.size() / sizeof(MicroBatch));
    std::memcpy(some.data(), bytes.data(), some.size() * sizeof(MicroBatch));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void DigestLog::write(const amp::ScalerState& scaler, const Reducer& reducer) {
  const std::vector<MicroBatch> all = of_all_ranks();
  if (!file_) {
    return;
  }
  if (!begun_) {
    begun_ = true;
    const std::string problem = file_->keep_until(scaler.iteration - 1);
    if (!problem.empty()) {
      std::cerr << "lines of later updates cannot be removed from the digest log: " << problem
                << std::endl;
    }
  }
  nlohmann::ordered_json line;
  line["update"] = scaler.iteration;
  line["made"] = scaler.iteration - scaler.skipped;
  for (const MicroBatch& each : all) {
    line["micro_batches"].push_back({hexadecimal(each.loss), hexadecimal(each.random)});
  }
  if (scaler.iteration % every_ == 0) {
    for (size_t b = 0; b < reducer.size(); ++b) {
      for (const Slot& slot : reducer.plans()[b].slots) {
        const ModelTensor& entry = reducer.parameters()[static_cast<size_t>(slot.parameter)];
        line["parameters"].push_back(
            {entry.name, digest_text(flat_alias(entry.tensor, entry.name)),
             reducer.scatters()  // no rank has the whole gradient
                 ? std::string()
                 : digest_text(reducer.wire(b).narrow(0, slot.offset, slot.numel))});
      }
    }
  }
  file_->append(line.dump() + "\n");
}

}  // namespace lockstep::detail
