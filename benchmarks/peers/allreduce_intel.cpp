// allreduce_intel [SCALE]: all-reduces of 2 ranks in place over Intel MPI or, compiled with
// LOCKSTEP_BENCHMARK_ONECCL, over oneCCL; names and calls as in allreduce.cpp.
// harness/intel.py compiles this file where it finds these libraries.
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "allreduce_sizes.h"
#include "recorder.h"

#ifdef LOCKSTEP_BENCHMARK_ONECCL
#include <oneapi/ccl.hpp>
#endif

namespace lockstep::benchmarks {
namespace {

/// A way to sum `count` elements in place.
struct Contender {
  const char* variant;
  std::function<void(void* data, size_t count)> sum;
};

#ifdef LOCKSTEP_BENCHMARK_ONECCL

ccl::communicator make_communicator(int rank) {
  ccl::init();
  ccl::kvs::address_type address;
  ccl::shared_ptr_class<ccl::kvs> meeting;
  if (rank == 0) {
    meeting = ccl::create_main_kvs();
    address = meeting->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) {
    meeting = ccl::create_kvs(address);
  }
  return ccl::create_communicator(2, rank, meeting);
}

/// For float and _Float16.
std::pair<std::vector<Contender>, std::vector<Contender>> contenders(int rank) {
  const auto communicator = std::make_shared<ccl::communicator>(make_communicator(rank));
  const auto of = [communicator](ccl::datatype type) {
    return Contender{
        "oneccl", [communicator, type](void* data, size_t count) {
          ccl::allreduce(data, data, count, type, ccl::reduction::sum, *communicator).wait();
        }};
  };
  return {{of(ccl::datatype::float32)}, {of(ccl::datatype::float16)}};
}

#else

void add_halves(void* from, void* into, int* count, MPI_Datatype*) {
  const auto* more = static_cast<const _Float16*>(from);
  auto* sum = static_cast<_Float16*>(into);
  for (int i = 0; i < *count; ++i) {
    sum[i] += more[i];
  }
}

/// For float and _Float16.
std::pair<std::vector<Contender>, std::vector<Contender>> contenders(int) {
  const auto of = [](const char* variant, MPI_Datatype type, MPI_Op operation) {
    return Contender{variant, [type, operation](void* data, size_t count) {
                       MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), type, operation,
                                     MPI_COMM_WORLD);
                     }};
  };
  MPI_Datatype two_bytes = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_BYTE, &two_bytes);
  MPI_Type_commit(&two_bytes);
  MPI_Op operation = MPI_OP_NULL;
  MPI_Op_create(add_halves, /*commute=*/1, &operation);
  return {
      {of("intel-mpi", MPI_FLOAT, MPI_SUM)},
      {of("intel-mpi", MPIX_C_FLOAT16, MPI_SUM), of("intel-mpi-custom-op", two_bytes, operation)}};
}

#endif

template <typename Element>
void measure(const Contender& contender, int rank, const std::string& type, const Size& size,
             double scale) {
  const int calls = std::max(3, static_cast<int>(size.calls * scale));
  const size_t count = size.bytes / sizeof(Element);
  const std::unique_ptr<Element, decltype(&std::free)> memory(
      static_cast<Element*>(std::aligned_alloc(64, size.bytes)), &std::free);
  Element* const data = memory.get();
  Series series(type + " " + size.name, contender.variant);
  for (int call = 0; call < warm_up_calls + calls; ++call) {
    const int base = 1 + call % 5;
    std::fill(data, data + count, static_cast<Element>(base + rank));
    MPI_Barrier(MPI_COMM_WORLD);
    if (call >= warm_up_calls) {
      series.begin();
    }
    contender.sum(data, count);
    if (call >= warm_up_calls) {
      series.end();
    }
    for (const size_t at : {size_t{0}, count / 2, count - 1}) {
      if (static_cast<double>(data[at]) != 2 * base + 1) {
        throw std::runtime_error("rank " + std::to_string(rank) + ": " + type + " " + size.name +
                                 ": a sum is wrong");
      }
    }
  }
  series.write();
}

void measure_all(int rank, double scale) {
  const auto [of_floats, of_halves] = contenders(rank);
  for (const Size& size : sizes) {
    for (const Contender& contender : of_floats) {
      measure<float>(contender, rank, "fp32", size, scale);
    }
    for (const Contender& contender : of_halves) {
      measure<_Float16>(contender, rank, "fp16", size, scale);
    }
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    if (ranks != 2) {
      throw std::runtime_error("runs on 2 ranks, not " + std::to_string(ranks));
    }
    lockstep::benchmarks::measure_all(rank, argc > 1 ? std::stod(argv[1]) : 1.0);
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return MPI_Finalize();
}
