#pragma once

#include <lockstep/runtime/data/labelled_images.h>

#include <string>
#include <vector>

namespace lockstep {

/// Reads the binary version of CIFAR-10 (records of 1 label byte and 3072 pixels; files
/// data_batch_1.bin ... and test_batch.bin), plain or gzip, files one after another: images uint8
/// [N, 3, 32, 32], labels 0..9.
/// Ranks: local. Threads: any.
/// Throws Error (exit code data) with file, byte offset and what was expected: missing or empty
/// file, a last record that is cut, a label out of range.
LabelledImages read_cifar10(const std::vector<std::string>& paths);

/// The same for CIFAR-100 (1 coarse label, 1 fine label, 3072 pixels; train.bin and test.bin):
/// labels are the fine ones, 0..99.
LabelledImages read_cifar100(const std::vector<std::string>& paths);

}  // namespace lockstep
