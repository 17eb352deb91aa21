#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/file_system.h>

#include <array>
#include <string>
#include <string_view>

namespace lockstep::snapshot {

/// The secret key of a run folder, in its file `memory.key`. It signs the manifests of the run's
/// snapshots in memory: whoever cannot read the file cannot make a snapshot in memory from which
/// the run would resume. A signature is BLAKE2b with a key (RFC 7693), 32 bytes, of libsodium.
/// Digests (XXH3) protect from damage only, since everybody can compute them.
///
/// Ranks: local. Threads: any. Errors: Error (exit code snapshot) with the file and the reason.
class RunKey {
 public:
  /// The key in `run_folder`. Throws if there is none, or if other users could know or choose it:
  /// the file must be a regular file of this user, without rights for others.
  static RunKey of(const std::string& run_folder);
  /// The same; makes a random key if the folder has none.
  static RunKey made_in(FileSystem& files, const std::string& run_folder);
  static bool is_in(const std::string& run_folder);

  /// `text`: 64 hexadecimal digits, as in the file. `named`: where it is from, for the error.
  RunKey(const std::string& text, const std::string& named);
  /// Ranks send each other the key in this form.
  std::string text() const;

  /// 64 hexadecimal digits.
  std::string signature_of(std::string_view content) const;
  /// Throws unless the snapshot at `path` has a manifest and its signature by this key.
  void check(const std::string& path) const;

 private:
  std::array<unsigned char, 32> bytes_ = {};
};

}  // namespace lockstep::snapshot
