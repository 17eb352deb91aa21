#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/host/announced_file.h>
#include <lockstep/collectives/impl/node_memory.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>

namespace lockstep::detail {
namespace {

/// Bits of an entry of /proc/self/pagemap.
constexpr uint64_t kPresent = uint64_t{1} << 63U;
constexpr uint64_t kSwapped = uint64_t{1} << 62U;
constexpr uint64_t kOfFile = uint64_t{1} << 61U;

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// An anonymous file with all of its memory. Not open if that cannot be had; errno says why.
Descriptor new_file(size_t bytes) {
  Descriptor file(memfd_create("lockstep-weights", MFD_CLOEXEC));
  if (!file.is_open() ||
      ftruncate(file.number(), static_cast<off_t>(bytes + sizeof(AnnouncedFile::mark))) != 0) {
    return Descriptor();
  }
  errno = posix_fallocate(file.number(), 0, static_cast<off_t>(bytes));
  return errno == 0 ? std::move(file) : Descriptor();
}

/// The file of a first rank of a node, announced to all.
std::string announce(const Descriptor& file, size_t bytes) {
  const AnnouncedFile own = announce_anonymous(file, bytes);
  return {reinterpret_cast<const char*>(&own), sizeof own};
}

/// The file of the nearest rank before this one whose memory this rank can reach.
std::pair<Descriptor, int> open_any(const std::vector<std::string>& all, int rank, size_t bytes) {
  const int ranks = static_cast<int>(all.size());
  for (int k = 0; k < ranks; ++k) {
    const int owner = (rank - k + ranks) % ranks;
    AnnouncedFile theirs;
    std::memcpy(&theirs, all[static_cast<size_t>(owner)].data(), sizeof theirs);
    if (theirs.path[0] == '\0') {
      continue;
    }
    Descriptor file(open(theirs.path, O_RDWR | O_CLOEXEC));
    if (has_mark(file, bytes, theirs)) {
      return {std::move(file), owner};
    }
  }
  return {Descriptor(), -1};
}

char* map(const Descriptor& file, size_t bytes, int flags) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file.number(), /*offset=*/0);
  LOCKSTEP_CHECK_CODE(data != MAP_FAILED, ExitCode::out_of_memory, "cannot map ", bytes,
                      " bytes of shared memory: ", std::strerror(errno));
  return static_cast<char*>(data);
}

}  // namespace

std::shared_ptr<NodeMemory> NodeMemory::make_if_possible(const Communicator& ranks, size_t bytes,
                                                         std::string& why) {
  bytes = (std::max<size_t>(bytes, 1) + page_bytes() - 1) / page_bytes() * page_bytes();
  Descriptor mine;
  if (ranks.local_rank() == 0) {
    mine = new_file(bytes);
    if (!mine.is_open()) {
      why = c10::str(bytes, " bytes of shared memory: ", std::strerror(errno));
    }
  }
  const std::vector<std::string> all = ranks.all_gather_bytes(announce(mine, bytes));
  const auto [file, owner] = open_any(all, ranks.rank(), bytes);
  const std::vector<int64_t> owners = ranks.all_gather_numbers(owner);
  std::vector<int> group;
  for (size_t rank = 0; rank < owners.size(); ++rank) {
    if (owners[rank] == owner) {
      group.push_back(static_cast<int>(rank));
    }
  }
  std::shared_ptr<NodeMemory> memory;
  if (owner < 0) {
    why = why.empty() ? "the shared memory of no rank of this node can be opened" : why;
  } else {
    try {
      memory.reset(new NodeMemory(file, bytes, std::move(group)));
    } catch (const Error& error) {
      why = error.what();
    }
  }
  const std::vector<int64_t> mapped = ranks.all_gather_numbers(memory != nullptr ? 1 : 0);
  return std::count(mapped.begin(), mapped.end(), 0) == 0 ? memory : nullptr;
}

std::shared_ptr<NodeMemory> NodeMemory::make(const Communicator& ranks, size_t bytes,
                                             const std::string& user) {
  std::string why;
  auto memory = make_if_possible(ranks, bytes, why);
  if (memory == nullptr) {
    const std::vector<std::string> reasons = ranks.all_gather_bytes(why);
    const auto first = std::find_if(reasons.begin(), reasons.end(),
                                    [](const std::string& each) { return !each.empty(); });
    if (ranks.rank() == 0) {
      std::cerr << "lockstep: " << user << ": rank " << first - reasons.begin() << " cannot have "
                << *first << "; each rank keeps its own copy of the weights" << std::endl;
    }
  }
  return memory;
}

NodeMemory::NodeMemory(const Descriptor& file, size_t bytes, std::vector<int> ranks)
    : bytes_(bytes),
      ranks_(std::move(ranks)),
      published_(map(file, bytes, MAP_SHARED)),
      page_map_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {
  try {
    own_ = map(file, bytes, MAP_PRIVATE | MAP_NORESERVE);
  } catch (const Error&) {
    munmap(published_, bytes_);
    throw;
  }
  for (char* data : {published_, own_}) {
    madvise(data, bytes, MADV_HUGEPAGE);
  }
}

NodeMemory::~NodeMemory() {
  munmap(published_, bytes_);
  munmap(own_, bytes_);
}

at::Tensor NodeMemory::tensor(char* data, int64_t numel, at::ScalarType dtype) {
  return at::from_blob(
      data, {numel}, [self = shared_from_this()](void*) {}, at::TensorOptions().dtype(dtype));
}

at::Tensor NodeMemory::published(size_t offset, int64_t numel, at::ScalarType dtype) {
  return tensor(published_ + offset, numel, dtype);
}

at::Tensor NodeMemory::own(size_t offset, int64_t numel, at::ScalarType dtype) {
  return tensor(own_ + offset, numel, dtype);
}

std::optional<size_t> NodeMemory::find_written() const {
  std::array<uint64_t, 4096> entries{};
  const size_t pages = bytes_ / page_bytes();
  const size_t first = reinterpret_cast<uintptr_t>(own_) / page_bytes();
  for (size_t page = 0; page < pages;) {
    const size_t count = std::min(entries.size(), pages - page);
    const auto wanted = static_cast<ssize_t>(count * sizeof(uint64_t));
    const bool known = pread(page_map_.number(), entries.data(), static_cast<size_t>(wanted),
                             static_cast<off_t>((first + page) * sizeof(uint64_t))) == wanted;
    for (size_t i = 0; i < count; ++i, ++page) {
      const bool in_memory = (entries[i] & (kPresent | kSwapped)) != 0;
      if (known && (!in_memory || (entries[i] & kOfFile) != 0)) {
        continue;
      }
      if (const auto found = check_page(page * page_bytes())) {
        return found;
      }
    }
  }
  return std::nullopt;
}

std::optional<size_t> NodeMemory::check_page(size_t offset) const {
  const char* mine = own_ + offset;
  const char* theirs = published_ + offset;
  if (std::memcmp(mine, theirs, page_bytes()) == 0) {
    madvise(own_ + offset, page_bytes(), MADV_DONTNEED);
    return std::nullopt;
  }
  const auto differs = std::mismatch(mine, mine + page_bytes(), theirs);
  return offset + static_cast<size_t>(differs.first - mine);
}

void NodeMemory::restore() const {
  madvise(own_, bytes_, MADV_DONTNEED);
}

}  // namespace lockstep::detail
