// The Python module entrepot_cluster._ucx.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "ucx_channel.h"

namespace nb = nanobind;

namespace entrepot::ucx {
namespace {

// Views of buffers of Python's, for as long as it exists.
class Exports {
 public:
  Exports() = default;
  ~Exports() {
    for (Py_buffer& view : views_)
      PyBuffer_Release(&view);
  }
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  void reserve(std::size_t count) { views_.reserve(count); }

  Range add(nb::handle object, int flags) {
    Py_buffer view;
    if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0) throw nb::python_error();
    views_.push_back(view);
    return {static_cast<std::byte*>(view.buf), static_cast<std::size_t>(view.len)};
  }

 private:
  std::vector<Py_buffer> views_;
};

void check(int error) {
  if (error == 0) return;
  errno = error;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

std::uint64_t send(Channel& channel, const nb::sequence& buffers) {
  Exports exports;
  std::vector<ConstRange> ranges;
  std::uint64_t bytes = 0;
  for (const nb::handle buffer : buffers) {
    ranges.emplace_back(exports.add(buffer, PyBUF_SIMPLE));
    bytes += ranges.back().size();
  }
  int error = 0;
  {
    const nb::gil_scoped_release released;
    error = channel.send(ranges);
  }
  check(error);
  return bytes;
}

std::uint64_t receive(Channel& channel, const nb::sequence& buffers) {
  Exports exports;
  std::vector<Range> ranges;
  std::uint64_t bytes = 0;
  for (const nb::handle buffer : buffers) {
    ranges.push_back(exports.add(buffer, PyBUF_WRITABLE));
    bytes += ranges.back().size();
  }
  int error = 0;
  {
    const nb::gil_scoped_release released;
    error = channel.receive(ranges);
  }
  check(error);
  return bytes;
}

bool wait_readable(Channel& channel, std::uint32_t timeout_ms) {
  int error = 0;
  {
    const nb::gil_scoped_release released;
    error = channel.wait_readable(timeout_ms);
  }
  if (error == ETIMEDOUT) return false;
  check(error);
  return true;
}

}  // namespace

NB_MODULE(_ucx, module) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Channel>(module, "Channel")
      .def(nb::init<int, std::uint32_t>(), nb::arg("socket"), nb::arg("limit_ms"))
      .def_prop_ro("address",
                   [](const Channel& channel) { return nb::bytes(channel.address().data(), channel.address().size()); })
      .def(
          "connect",
          [](Channel& channel, const nb::bytes& address, std::uint64_t send_tag, std::uint64_t receive_tag) {
            channel.connect({address.c_str(), address.size()}, send_tag, receive_tag);
          },
          nb::arg("address"), nb::arg("send_tag"), nb::arg("receive_tag"))
      .def("send", &send, nb::arg("buffers"))
      .def("receive", &receive, nb::arg("into"))
      .def("wait_readable", &wait_readable, nb::arg("timeout_ms"))
      .def("flush", &Channel::flush, nb::arg("timeout_ms"), Released())
      .def("has_room", &Channel::has_room, Released())
      .def("is_quiet", &Channel::is_quiet, Released())
      .def("interrupt", &Channel::interrupt, Released())
      .def("close", &Channel::close, Released());
}

}  // namespace entrepot::ucx
