// A rank that says on which of the host's addresses other machines can reach it.
#include <arpa/inet.h>
#include <mpi.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

/// Empty for what is no socket of the network, does not listen, or listens on loopback only.
std::string listens_on(int descriptor) {
  int listens = 0;
  socklen_t size = sizeof listens;
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return "";
  }
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (address.ss_family == AF_INET) {
    const auto* name = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &name->sin_addr, text.data(), text.size());
  } else if (address.ss_family == AF_INET6) {
    const auto* name = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &name->sin6_addr, text.data(), text.size());
  }
  const std::string found = text.data();
  return found.rfind("127.", 0) == 0 || found == "::1" ? "" : found;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::string found;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    const std::string address = listens_on(descriptor);
    found += address.empty() ? "" : " " + address;
  }
  std::printf("sum %d, listens on%s\n", sum, found.empty() ? " no network" : found.c_str());
  MPI_Finalize();
  return 0;
}
