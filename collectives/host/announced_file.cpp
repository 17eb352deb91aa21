#include <lockstep/collectives/host/announced_file.h>

#include <sys/random.h>
#include <unistd.h>

#include <cstdio>

namespace lockstep::detail {

bool draw_mark(AnnouncedFile& announced) {
  return getrandom(announced.mark.data(), sizeof announced.mark, /*flags=*/0) ==
         ssize_t{sizeof announced.mark};
}

bool write_mark(const Descriptor& file, size_t bytes, const AnnouncedFile& announced) {
  return pwrite(file.number(), announced.mark.data(), sizeof announced.mark,
                static_cast<off_t>(bytes)) == ssize_t{sizeof announced.mark};
}

bool has_mark(const Descriptor& file, size_t bytes, const AnnouncedFile& announced) {
  auto found = announced.mark;
  found.fill(0);
  return file.is_open() &&
         pread(file.number(), found.data(), sizeof found, static_cast<off_t>(bytes)) ==
             ssize_t{sizeof found} &&
         found == announced.mark;
}

AnnouncedFile announce_anonymous(const Descriptor& file, size_t bytes) {
  AnnouncedFile announced = {};
  if (file.is_open() && draw_mark(announced) && write_mark(file, bytes, announced)) {
    std::snprintf(announced.path, sizeof announced.path, "/proc/%d/fd/%d",
                  static_cast<int>(getpid()), file.number());
  }
  return announced;
}

}  // namespace lockstep::detail
