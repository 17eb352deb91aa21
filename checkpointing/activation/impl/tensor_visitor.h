#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {

/// Finds the tensors inside a value: visit(value, f) calls f(at::Tensor&) for each, in a fixed
/// order. Other types than those below are treated as holding no tensor; specialise TensorVisitor
/// for your own struct.
template <class T>
struct TensorVisitor {
  template <class F>
  static void visit(T& /*value*/, F&& /*f*/) {}
};

template <class T, class F>
void visit_tensors(T& value, F&& f) {
  TensorVisitor<T>::visit(value, f);
}

template <>
struct TensorVisitor<at::Tensor> {
  template <class F>
  static void visit(at::Tensor& value, F&& f) {
    f(value);
  }
};

template <class T>
struct TensorVisitor<std::optional<T>> {
  template <class F>
  static void visit(std::optional<T>& value, F&& f) {
    if (value.has_value()) {
      visit_tensors(*value, f);
    }
  }
};

template <class... T>
struct TensorVisitor<std::tuple<T...>> {
  template <class F>
  static void visit(std::tuple<T...>& value, F&& f) {
    std::apply([&](auto&... member) { (visit_tensors(member, f), ...); }, value);
  }
};

template <class A, class B>
struct TensorVisitor<std::pair<A, B>> {
  template <class F>
  static void visit(std::pair<A, B>& value, F&& f) {
    visit_tensors(value.first, f);
    visit_tensors(value.second, f);
  }
};

template <class T, class Allocator>
struct TensorVisitor<std::vector<T, Allocator>> {
  template <class F>
  static void visit(std::vector<T, Allocator>& value, F&& f) {
    for (T& element : value) {
      visit_tensors(element, f);
    }
  }
};

template <class Allocator>
struct TensorVisitor<std::vector<bool, Allocator>> {
  template <class F>
  static void visit(std::vector<bool, Allocator>& /*value*/, F&& /*f*/) {}
};

template <class T, std::size_t size>
struct TensorVisitor<std::array<T, size>> {
  template <class F>
  static void visit(std::array<T, size>& value, F&& f) {
    for (T& element : value) {
      visit_tensors(element, f);
    }
  }
};

template <class K, class T, class... Rest>
struct TensorVisitor<std::map<K, T, Rest...>> {
  template <class F>
  static void visit(std::map<K, T, Rest...>& value, F&& f) {
    for (auto& entry : value) {
      visit_tensors(entry.second, f);
    }
  }
};

}  // namespace lockstep
