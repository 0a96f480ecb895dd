// Instances of frozen dataclasses, for lists of many: a frozen class's own __init__ calls object.__setattr__ for each
// field from byte code, which takes longer than all else that makes a record of a list.
#include <nanobind/nanobind.h>

#include "bindings/common.h"

namespace entrepot::bindings {
namespace {

// new_frozen(cls, **fields): all fields of a class whose only storage is its slots. As object.__setattr__ does, this
// passes over the __setattr__ of the class.
PyObject* new_frozen(PyObject*, PyObject* const* arguments, Py_ssize_t positional, PyObject* names) {
  if (positional != 1 || !PyType_Check(arguments[0]) || names == nullptr) {
    PyErr_SetString(PyExc_TypeError, "new_frozen takes a class, and each of its fields by name");
    return nullptr;
  }
  auto* cls = reinterpret_cast<PyTypeObject*>(arguments[0]);
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(cls, Py_tp_alloc));
  PyObject* instance = allocate(cls, 0);
  if (instance == nullptr) return nullptr;
  for (Py_ssize_t index = 0; index < PyTuple_Size(names); ++index) {
    if (PyObject_GenericSetAttr(instance, PyTuple_GetItem(names, index), arguments[1 + index]) != 0) {
      Py_DECREF(instance);
      return nullptr;
    }
  }
  return instance;
}

PyMethodDef functions[] = {
    // The type in the table is that of functions without names; the flags say which it is.
    {"new_frozen", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&new_frozen)), METH_FASTCALL | METH_KEYWORDS,
     nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_frozen(nb::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw nb::python_error();
}

}  // namespace entrepot::bindings
