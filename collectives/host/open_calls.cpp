#include <lockstep/collectives/host/open_calls.h>

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <sstream>

namespace lockstep::detail {

std::string OpenCalls::to_text() const {
  std::string text = c10::str(communicator, ' ', ranks, ' ', issued, ' ', forms.size());
  for (const Form& form : forms) {
    text += c10::str(' ', form.chunks, ' ', form.staged);
  }
  return text + '\n';
}

std::map<std::string, CallsOfRanks> compare_calls(const std::vector<std::string>& texts) {
  std::map<std::string, CallsOfRanks> all;
  std::map<std::string, OpenCalls> furthest;
  std::map<std::string, std::map<uint64_t, OpenCalls::Form>> known;
  for (const std::string& text : texts) {
    std::istringstream in(text);
    OpenCalls calls;
    for (size_t forms = 0; in >> calls.communicator >> calls.ranks >> calls.issued >> forms;) {
      calls.forms.resize(forms);
      for (OpenCalls::Form& form : calls.forms) {
        in >> form.chunks >> form.staged;
      }
      CallsOfRanks& together = all[calls.communicator];
      uint64_t number = calls.issued - calls.forms.size();
      for (const OpenCalls::Form& form : calls.forms) {
        const OpenCalls::Form& first =
            known[calls.communicator].try_emplace(++number, form).first->second;
        together.alike =
            together.alike && first.chunks == form.chunks && first.staged == form.staged;
      }
      together.common =
          together.found == 0 ? calls.issued : std::min(together.common, calls.issued);
      together.last = std::max(together.last, calls.issued);
      together.ranks = calls.ranks;
      ++together.found;
      if (calls.issued >= furthest[calls.communicator].issued) {
        furthest[calls.communicator] = calls;
      }
    }
  }
  for (auto& [name, together] : all) {
    const std::vector<OpenCalls::Form>& forms = furthest[name].forms;
    const auto rest = static_cast<std::ptrdiff_t>(
        std::min<uint64_t>(together.last - together.common, forms.size()));
    together.rest.assign(forms.end() - rest, forms.end());
  }
  return all;
}

}  // namespace lockstep::detail
