#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <lockstep/amp/non_finite_tracer.h>
#include <lockstep/amp/tracing/traced_arguments.h>

#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace lockstep::amp {
namespace {

constexpr size_t kTrail = 6;  // operators kept before the first find, without views and copies

const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

}  // namespace

class NonFiniteTracer::Watch final : public c10::DebugInfoBase {
 public:
  explicit Watch(const Model& model) {
    for (const ModelTensor& entry : model.parameters()) {
      stands_for_[entry.tensor.unsafeGetTensorImpl()] = entry.name;
      known_.insert(storage_of(entry.tensor));
      known_tensors_.push_back(entry.tensor);
    }
    for (const ModelTensor& entry : model.buffers()) {
      known_.insert(storage_of(entry.tensor));
      known_tensors_.push_back(entry.tensor);
    }
  }

  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    const at::DisableRecordFunctionGuard no_recursion;
    auto* watch = current();
    return watch != nullptr && !watch->first_ ? watch->start(function) : nullptr;
  }

  static void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
    const at::DisableRecordFunctionGuard no_recursion;
    auto* watch = current();
    if (watch != nullptr && context != nullptr) {
      watch->end(function, *static_cast<TracedArguments*>(context));
    }
  }

  void begin_backward() { backward_ = true; }
  const std::optional<NonFinite>& first() const { return first_; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }

 private:
  static Watch* current() {
    return static_cast<Watch*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO_2));
  }

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto arguments = std::make_unique<TracedArguments>();
    arguments->name = function.name();
    arguments->sequence = function.seqNr();
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      arguments->autograd_node = true;
      // A node that no operator made belongs to the module of the operator before it.
      const auto after = module_of_sequence_.upper_bound(function.seqNr());
      last_module_ =
          after == module_of_sequence_.begin() ? std::string() : std::prev(after)->second;
      return arguments;
    }
    for (const c10::IValue& value : function.inputs()) {
      arguments->read(value);
    }
    if (depth_++ == 0 && !backward_) {
      note_inputs(*arguments);
    }
    if (changes_in_place(arguments->name)) {
      arguments->summarise_tensors();
    }
    return arguments;
  }

  void end(const at::RecordFunction& function, TracedArguments& arguments) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (arguments.autograd_node) {
      return;
    }
    --depth_;
    if (first_) {
      return;
    }
    const std::string parameter = parameter_read(arguments);
    if (!backward_) {
      if (!parameter.empty()) {
        last_module_ = module_of(parameter);
      }
      module_of_sequence_[arguments.sequence] = last_module_;
    }
    TracedArguments results;
    for (const c10::IValue& value : function.outputs()) {
      results.read(value);
    }
    for (const at::Tensor& result : results.tensors) {
      if (result.defined() && result.has_storage()) {
        made_.insert(storage_of(result));
      }
      if (!parameter.empty() && passes_on(arguments.name)) {
        stands_for_[result.unsafeGetTensorImpl()] = parameter;
        known_tensors_.push_back(result);
      }
      if (has_values(result) && !leaves_memory_unset(arguments.name) &&
          !is_part_of_a_cast(arguments)) {
        judge(arguments, parameter, result);
      }
    }
  }

  /// A copy inside another operator, mostly to uninitialised memory: only the outer one is judged.
  bool is_part_of_a_cast(const TracedArguments& arguments) const {
    return depth_ > 0 && arguments.name == "aten::copy_";
  }

  void judge(TracedArguments& arguments, const std::string& parameter, const at::Tensor& result) {
    const ValueSummary values = summarise(result);
    TracedOperator traced{arguments.name,       last_module_,         parameter, backward_,
                          result.scalar_type(), result.sizes().vec(), values};
    if (!values.finite()) {
      arguments.summarise_tensors();
      if (const auto origin = origin_of(arguments, values, traced.parameter)) {
        first_ = NonFinite{*origin,
                           traced,
                           arguments.faulty_number.value_or(0.0),
                           arguments.summary,
                           {trail_.begin(), trail_.end()}};
        return;
      }
    }
    if (passes_on(traced.name)) {
      return;
    }
    trail_.push_back(std::move(traced));
    if (trail_.size() > kTrail) {
      trail_.pop_front();
    }
  }

  /// Empty for a deliberate infinity and its consequences.
  std::optional<NonFinite::Origin> origin_of(const TracedArguments& arguments,
                                             const ValueSummary& values,
                                             std::string& parameter) const {
    for (const at::Tensor& tensor : arguments.tensors) {
      if (!has_values(tensor) || summarise(tensor).finite()) {
        continue;
      }
      const auto owner = stands_for_.find(tensor.unsafeGetTensorImpl());
      if (owner != stands_for_.end()) {
        parameter = owner->second;
        return NonFinite::Origin::parameter;
      }
      const bool outside = known_.count(storage_of(tensor)) != 0;
      const bool mask =
          !at::isnan(tensor).any().item<bool>() && !at::isposinf(tensor).any().item<bool>();
      if (outside && !mask) {
        return NonFinite::Origin::input;
      }
    }
    if (arguments.faulty_number && calculates(arguments.name)) {
      return NonFinite::Origin::number;
    }
    const ValueSummary& input = arguments.summary;
    const bool new_nan = values.nans > 0 && input.nans == 0;
    const bool new_inf = values.infs > 0 && input.finite();
    return (new_nan || new_inf) && !arguments.infinite_scalar ? std::optional(NonFinite::Origin::op)
                                                              : std::nullopt;
  }

  std::string parameter_read(const TracedArguments& arguments) const {
    for (const at::Tensor& tensor : arguments.tensors) {
      if (tensor.defined()) {
        const auto found = stands_for_.find(tensor.unsafeGetTensorImpl());
        if (found != stands_for_.end()) {
          return found->second;
        }
      }
    }
    return {};
  }

  void note_inputs(const TracedArguments& arguments) {
    for (const at::Tensor& tensor : arguments.tensors) {
      if (tensor.defined() && tensor.has_storage() &&
          !tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
          known_.count(storage_of(tensor)) == 0 && made_.count(storage_of(tensor)) == 0) {
        known_.insert(storage_of(tensor));
        inputs_.push_back(tensor);
      }
    }
  }

  std::mutex mutex_;
  std::optional<NonFinite> first_;
  std::deque<TracedOperator> trail_;
  bool backward_ = false;
  int depth_ = 0;  // nesting depth of operators
  std::string last_module_;
  std::map<int64_t, std::string> module_of_sequence_;
  std::unordered_map<const c10::TensorImpl*, std::string> stands_for_;
  std::unordered_set<const void*> known_;  // storages of parameters, buffers and noted inputs
  std::unordered_set<const void*> made_;
  std::vector<at::Tensor> known_tensors_;  // keeps the addresses above from being used again
  std::vector<at::Tensor> inputs_;
};

struct NonFiniteTracer::Registration {
  explicit Registration(const std::shared_ptr<Watch>& watch)
      : visible(c10::DebugInfoKind::TEST_INFO_2, watch),
        handle(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&Watch::on_start, &Watch::on_end)
                .needsInputs(true)
                .needsOutputs(true)
                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~Registration() { at::removeCallback(handle); }

  c10::DebugInfoGuard visible;
  at::CallbackHandle handle;
};

NonFiniteTracer::NonFiniteTracer(const Model& model)
    : watch_(std::make_shared<Watch>(model)),
      registration_(std::make_unique<Registration>(watch_)) {}

NonFiniteTracer::~NonFiniteTracer() = default;

void NonFiniteTracer::begin_backward() {
  watch_->begin_backward();
}

const std::optional<NonFinite>& NonFiniteTracer::first() const {
  return watch_->first();
}

const std::vector<at::Tensor>& NonFiniteTracer::inputs() const {
  return watch_->inputs();
}

}  // namespace lockstep::amp
