#pragma once

#include <lockstep/inputs/labelled_images.h>

#include <string>
#include <vector>

namespace lockstep {

/// Reads CIFAR-10 in its binary version, plain or gzip. A record is 1 label byte and 3072 pixels.
/// The files (data_batch_1.bin ... and test_batch.bin) are read one after another. Returns images
/// uint8 [N, 3, 32, 32] and labels 0..9.
/// Ranks: local. Threads: any.
/// Throws Error (exit code data) that names file, byte offset and the expected content: missing or
/// empty file, truncated last record, label out of range.
LabelledImages read_cifar10(const std::vector<std::string>& paths);

/// Reads CIFAR-100 in the same way (1 coarse label, 1 fine label, 3072 pixels; train.bin and
/// test.bin). The labels are the fine labels, 0..99.
LabelledImages read_cifar100(const std::vector<std::string>& paths);

}  // namespace lockstep
