"""gsel from Python, in one file: selection of devices, planning, communication between ranks, and the trainer's pull
driver.

    import gsel

    print(gsel.resolve("count:2"))                    # which devices, and why
    with gsel.Communicator() as comm:                 # under `gsel run`, torchrun, mpirun or srun; else one rank
        comm.allreduce(array)                         # in place: NumPy, PyTorch, bytearray, whatever has __dlpack__
        total = comm.allreduce(1.5)                   # a number gives a number

It needs Python 3.9 and libgsel. It looks for libgsel in GSEL_LIB_DIR if that is set, else in the installation that this
file belongs to, where the loader looks, and where pkg-config says. NumPy and PyTorch are used through what their
objects offer, and are not imported. The headers in include/gsel say what each call does in detail.

Errors    Classes, one per code (PeerError for GSEL_ERR_PEER), with rank, operation and place. Error is their base.
Ctrl-C    It ends any call. In the main thread, calls that wait for other ranks run on a helper thread, so that signal
          handlers run meanwhile. If a handler raises, the communicator is aborted on all ranks, and the exception goes
          on. This costs some ten microseconds per call, which Communicator(interruptible=False) saves.
Threads   Calls release the interpreter's lock. One thread at a time makes calls on an object; any may call abort().
Lifetime  Objects are released when they are closed, leave their `with`, or are collected, whatever comes first."""
import array as _array
import builtins as _builtins
import ctypes as _c
import hashlib as _hashlib
import itertools as _itertools
import json as _json
import os as _os
import queue as _queue
import subprocess as _subprocess
import threading as _threading
import time as _time
import types as _types

__version__ = "0.1.0"

# ---- the headers: constants, structs and functions. tests/bindings compares all of them with C ---------------------

I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2, BOOL = range(1, 16)
SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR = range(1, 9)
INPUT, FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD = range(1, 6)
ORDER_RANKS, ORDER_TREE = 0, 1
COMM_NO_THREAD, COMM_BITWISE, COMM_NOT_THROUGH_HOST, COMM_THREAD_MULTIPLE = 1, 2, 4, 8
ANY_RANK, ANY_TAG, NO_SAMPLES = -2, -1, 1
RESOLVE_NO_ENV, RESOLVE_PER_RANK = 1, 2
INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_CALLBACK = range(4)
PARAM_NO_DECAY, PARAM_FROZEN, PARAM_NO_CLIP, PARAM_REPLICATE_IF_FEW = 1, 2, 4, 8
SHARD_NONE, SHARD_DIM = 0, 1
VALUE_INPUT, VALUE_NOT_DIFFERENTIABLE, VALUE_SCALAR, VALUE_REPLICATE_IF_FEW = 1, 2, 4, 8
PLACEMENT_REPLICATE, PLACEMENT_SHARD, PLACEMENT_PARTIAL = 0, 1, 2
LAYER_LOSS, LAYER_NO_CUT_AFTER, LAYER_RECOMPUTABLE, LAYER_OWN_PARAMS, LAYER_POSITIONWISE = 1, 2, 4, 8, 16
LAYER_SAVES_WHOLE, LAYER_ALWAYS_ACCUMULATES, LAYER_WEIGHT_READS_PARAMS = 32, 64, 128
(COLLECTIVE_BARRIER, COLLECTIVE_ALLREDUCE, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALLGATHER, COLLECTIVE_BROADCAST,
 COLLECTIVE_SEND, COLLECTIVE_RECV, COLLECTIVE_REDUCE, COLLECTIVE_GATHER, COLLECTIVE_SCATTER, COLLECTIVE_ALLTOALL,
 COLLECTIVE_REDUCE_SCATTERV, COLLECTIVE_ALLGATHERV) = range(13)

SAVE_NONE, SAVE_UNDER_WAY, SAVE_DONE, SAVE_FAILED = range(4)
STATE_SHARED, STATE_OF_RANK = 0, 1
REBIND_FROM_RANKS, REBIND_FROM_CHECKPOINT = 1, 2

_NUL = _c.c_size_t(-1).value
_DTYPES = dict(zip("i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 bool".split(), range(1, 16)))
_DTYPE_NAMES = {number: name for name, number in _DTYPES.items()}
_TYPESTR = {"|i1": I8, "|u1": U8, "<i2": I16, "<u2": U16, "<i4": I32, "<u4": U32, "<i8": I64, "<u8": U64, "<f2": F16,
            "<f4": F32, "<f8": F64, "|b1": BOOL}


class _Str(_c.Structure):
    _fields_ = [("data", _c.c_char_p), ("len", _c.c_size_t)]

    def __str__(self):
        return (self.data or b"")[:self.len].decode("utf-8", "replace")


_LETTERS = {"i": _c.c_int32, "I": _c.c_uint32, "q": _c.c_int64, "Q": _c.c_uint64, "z": _c.c_size_t, "d": _c.c_double,
            "p": _c.c_void_p, "s": _Str, "6": _c.c_int64 * 6}
_STRUCTS = {"gsel_str": _Str}


def _struct(name, fields):
    """Declares a struct of the headers: "field:letter ...". It states its own size when it is made."""
    def init(self, *args, **values):
        _c.Structure.__init__(self, *args, **values)
        if hasattr(self, "struct_size"):
            self.struct_size = _c.sizeof(self)
    fields = [(field, _LETTERS[letter]) for field, letter in (pair.split(":") for pair in fields.split())]
    _STRUCTS[name] = type(name, (_c.Structure,), {"_fields_": fields, "__init__": init})
    return _STRUCTS[name]


_Tensor = _struct("gsel_tensor", "data:p n_elems:q dims:6 n_dims:i dtype:i")
_LETTERS["T"] = _Tensor
_Device = _struct("gsel_dlpack_device", "type:i id:i")
_EnvVar = _struct("gsel_env_var", "name:s value:s")
_ResolveOptions = _struct(
    "gsel_resolve_options", "struct_size:I reserved:I inventory:p env:p n_env:z devices:s accelerator:s flags:I "
    "reserved2:I compat:s order:s include:s exclude:s hostfile:s hostfile_text:s")
_PlanOptions = _struct(
    "gsel_plan_options", "struct_size:I reserved:I model:s model_name:s described:p cluster:s inventory:p link:s "
    "network:s memory_bytes:d batch:q sequence:q precision:s fixed:s measured:s nodes:i n_shown:i "
    "progress:p user_data:p")
_CommOptions = _struct(
    "gsel_comm_options", "struct_size:I reserved:I rank:i world_size:i id:p timeout_s:d join_timeout_s:d config:p "
    "device:s order:i flags:I name:s accelerator:s transport:s "
    "rendezvous:s")
_Message = _struct("gsel_message", "struct_size:I source:i tag:i dtype:i count:Q")
_Collective = _struct(
    "gsel_collective", "struct_size:I kind:i dtype:i op:i root:i source:i send:p recv:p count:Q recv_count:Q "
    "send_counts:p send_offsets:p recv_counts:p recv_offsets:p factor:d timeout_s:d label:s tag:i recv_tag:i "
    "received:p stream:p send_parts:p recv_parts:p")
_ParamOptions = _struct(
    "gsel_param_options", "struct_size:I reserved:I name:s dims:p n_dims:i dtype:i flags:I init:i init_scale:d "
    "init_fn:p init_user_data:p shard:i shard_dim:i shard_blocks:i shard_granularity:i lr_factor:d "
    "init_free_user_data:p")
_ValueOptions = _struct(
    "gsel_value_options", "struct_size:I reserved:I name:s dims:p n_dims:i dtype:i flags:I placement:i shard_dim:i "
    "shard_granularity:i shard_blocks:i sequence_dim:i")
_LayerOptions = _struct(
    "gsel_layer_options", "struct_size:I reserved:I name:s inputs:p outputs:p params:p n_inputs:i n_outputs:i "
    "n_params:i flags:I saved_bytes_per_sample:Q flop_per_sample:d forward:p backward_input:p backward_weight:p "
    "backward:p user_data:p backward_input_unread:Q backward_weight_unread:Q backward_unread_params:Q forward_phases:p "
    "backward_phases:p n_forward_phases:i n_backward_phases:i free_user_data:p")
_TrainerOptions = _struct(
    "gsel_trainer_options",
    "struct_size:I reserved:I config:p data:p data_user_data:p optimizer:p data_free_user_data:p")
_Call = _struct(
    "gsel_call", "struct_size:I reserved:I layer:i microbatch:i n_samples:q sample_ids:p params:p inputs:p outputs:p "
    "d_outputs:p d_inputs:p d_params:p n_params:i n_inputs:i n_outputs:i accumulate:i saved:p saved_bytes:Q rng_key:Q "
    "stream:p message:p message_capacity:z user_data:p step:q evaluating:i phase:i reductions:p n_reductions:i "
    "reserved2:i produced:p param_shards:p input_shards:p output_shards:p shard_index:i shard_count:i "
    "device_rng_key:p")
_DataRequest = _struct(
    "gsel_data_request", "struct_size:I reserved:I value:i microbatch:i n_samples:q sample_ids:p dst:T message:p "
    "message_capacity:z stream:p")
_Work = _struct("gsel_work", "struct_size:I reserved:I kind:i reserved2:i ticket:Q call:p input:p")
_StepReport = _struct(
    "gsel_step_report", "struct_size:I reserved:I step:q loss:d loss_sum:d weight:d gradient_norm:d seconds:d "
    "compute_s:d exposed_comm_s:d optimizer_s:d bytes_sent:Q n_reduces:i n_overlapped:i n_allgathers:i skipped:i "
    "allgather_s:d exposed_allgather_s:d learning_rate:d loss_scale:d peak_bytes:Q offload_bytes_in:Q "
    "offload_bytes_out:Q validated_step:q restarts:i non_finite_rank:i non_finite_layer:i non_finite_param:i "
    "non_finite_microbatch:i non_finite_value:i save:i reserved2:I")

_CheckpointOptions = _struct("gsel_checkpoint_options", "struct_size:I reserved:I keep:i reserved2:I")
_CheckpointReport = _struct(
    "gsel_checkpoint_report", "struct_size:I reserved:I step:q bytes:Q needed_bytes:Q seconds:d blocked_seconds:d "
    "copy_seconds:d compared_bytes:Q")
_StateEntry = _struct(
    "gsel_state_entry", "struct_size:I reserved:I name:s role:s param:i dtype:i n_dims:i n_pieces:i shape:6")
_StateOwn = _struct("gsel_state_own", "struct_size:I scope:i name:s data:p bytes:Q")
_StateRun = _struct("gsel_state_run", "whole:q local:q count:q")
_TrainingNumbers = _struct(
    "gsel_training_numbers", "struct_size:I reserved:I step:q updates:q loss_scale:d good_steps:q overflows_left:q "
    "learning_rate:d first_sample:q seed:q")
_RebindOptions = _struct("gsel_rebind_options", "struct_size:I reserved:I config:p folder:s")
_RebindReport = _struct(
    "gsel_rebind_report", "struct_size:I source:i step:q lost_steps:q bytes_moved:Q seconds:d move_seconds:d")

_WeightsReport = _struct(
    "gsel_weights_report", "struct_size:I reserved:I n_tensors:i n_kept:i n_ignored:i n_widened:i bytes:Q "
    "needed_bytes:Q compared_bytes:Q reads:Q seconds:d")

# Each function as name, result and parameters, in the same letters; v: nothing, t: static text. The last parameter of a
# fallible one is the error.
_FUNCTIONS = """
gsel_version i() gsel_version_text t() gsel_status_name t(i) gsel_dtype_bytes z(i)
gsel_error_code i(p) gsel_error_message s(p) gsel_error_cause p(p) gsel_error_rank i(p) gsel_error_file s(p)
gsel_error_line i(p) gsel_error_column i(p) gsel_error_token s(p) gsel_error_free v(p)
gsel_inventory_load i(spp) gsel_inventory_parse i(sspp) gsel_inventory_free v(p)
gsel_resolve i(ppp) gsel_selection_env i(pippp) gsel_selection_json s(p) gsel_selection_text s(p)
gsel_selection_free v(p)
gsel_plan_create i(ppp) gsel_plan_estimate i(ppp) gsel_plan_text s(p) gsel_plan_json s(p) gsel_plan_toml i(pipp)
gsel_plan_free v(p)
gsel_config_load i(spp) gsel_config_parse i(sspp) gsel_config_get s(ps) gsel_config_set i(pssp) gsel_config_free v(p)
gsel_unique_id_create i(pp) gsel_unique_id_listen i(pp) gsel_comm_init i(ppp) gsel_comm_rank i(p)
gsel_comm_world_size i(p) gsel_comm_name s(p)
gsel_comm_run i(ppp) gsel_comm_set_stream i(ppp) gsel_comm_synchronize i(pp) gsel_comm_set_timeout i(pdp)
gsel_comm_split i(piipp) gsel_comm_dup i(ppp) gsel_comm_shrink i(ppp) gsel_comm_resync i(pp) gsel_comm_abort v(ps)
gsel_comm_grow i(pppp) gsel_comm_merge i(pippp)
gsel_comm_free v(p) gsel_mem_alloc i(pzpp) gsel_mem_free i(ppp)
gsel_op_create i(szppppp) gsel_op_free v(i)
gsel_tensor_from_dlpack i(pppp) gsel_tensor_from_dlpack_versioned i(pppp) gsel_tensor_to_dlpack i(pppppp)
gsel_model_create i(pp) gsel_model_add_param i(pppp) gsel_model_add_value i(pppp) gsel_model_add_layer i(pppp)
gsel_model_finish i(pp) gsel_model_free v(p)
gsel_trainer_create i(ppppp) gsel_trainer_next_work i(ppp) gsel_trainer_complete i(pQisp) gsel_trainer_report i(ppp)
gsel_trainer_begin_evaluation i(pqp) gsel_trainer_read_param i(pipzp) gsel_trainer_read_gradient i(pipzp)
gsel_trainer_set_learning_rate i(pdp) gsel_trainer_save i(psppp) gsel_trainer_load i(pspp) gsel_trainer_free v(p)
gsel_trainer_save_begin i(psppp) gsel_trainer_save_state i(p) gsel_trainer_save_wait i(ppp)
gsel_state_open i(ppp) gsel_state_free v(p) gsel_state_count i(p) gsel_state_entry_at i(pipp) gsel_state_runs i(piipqpp)
gsel_state_read_piece i(piiqqpp) gsel_state_read i(piqqpp) gsel_state_write i(piqqppp) gsel_state_numbers i(ppp)
gsel_state_set_numbers i(ppp) gsel_state_own_count i(p) gsel_state_own_at i(pipp) gsel_trainer_add_state i(pspzip)
gsel_trainer_rebind i(ppppp) gsel_trainer_join i(ppppppp)
gsel_trainer_load_weights i(psppp) gsel_trainer_export_weights i(pspipp)
"""
_FREE = _c.CFUNCTYPE(None, _c.c_void_p)
_OP = _c.CFUNCTYPE(_c.c_int32, _c.c_void_p, _c.c_void_p, _c.c_size_t, _c.c_int32, _c.c_void_p)
_INIT = _c.CFUNCTYPE(_c.c_int32, _c.c_void_p, _c.c_int64, _c.c_int64, _c.c_uint64, _c.c_void_p)

# ---- the library ---------------------------------------------------------------------------------------------------


def _places():
    """Files that may be libgsel, in the order in which they are tried. The name has the major version of the ABI."""
    name = "libgsel.so.0"
    if _os.environ.get("GSEL_LIB_DIR"):
        yield _os.path.join(_os.environ["GSEL_LIB_DIR"], name)
        return
    here = _os.path.dirname(_os.path.abspath(__file__))
    if here.endswith(_os.path.join("share", "gsel", "python")):
        lib = _os.path.join(here, "..", "..", "..", "lib")
        yield _os.path.join(lib, name)
        for folder in sorted(_os.listdir(lib)) if _os.path.isdir(lib) else []:
            yield _os.path.join(lib, folder, name)
    yield name
    try:
        said = _subprocess.run(["pkg-config", "--variable=libdir", "gsel"], capture_output=True, text=True)
        if said.stdout.strip():
            yield _os.path.join(said.stdout.strip(), name)
    except OSError:
        pass


def _load():
    tried = []
    for place in _places():
        if _os.sep in place and not _os.path.exists(place):
            tried.append(place + ": no such file")
            continue
        try:
            lib = _c.CDLL(place)
            break
        except OSError as error:
            tried.append(str(error))
    else:
        raise ImportError("gsel.py found no libgsel; set GSEL_LIB_DIR to its folder. Tried: " + "; ".join(tried))
    letters = {**_LETTERS, "v": None, "t": _c.c_char_p}
    words = _FUNCTIONS.split()
    for name, signature in zip(words[::2], words[1::2]):
        function = getattr(lib, name, None)
        if function is None:
            raise ImportError(f"gsel.py {__version__} needs {name}; {place} has none, so it is of another version")
        function.restype = letters[signature[0]]
        function.argtypes = [letters[letter] for letter in signature[2:-1]]
    mine = [int(part) for part in __version__.split(".")]
    loaded = lib.gsel_version()
    if loaded // 10000 != mine[0] or loaded // 100 % 100 < mine[1]:
        raise ImportError(f"gsel.py {__version__} needs libgsel {mine[0]}.{mine[1]} or a later minor version; "
                          f"{place} is {lib.gsel_version_text().decode()}")
    return lib


_lib = _load()


def version():
    """Version of the loaded library, such as "0.1.0"."""
    return _lib.gsel_version_text().decode()


def _text(value):
    if value is None:
        return _Str(None, 0)
    data = _os.fspath(value).encode() if not isinstance(value, bytes) else value
    return _Str(data, len(data))


# ---- errors --------------------------------------------------------------------------------------------------------


class Error(Exception):
    """What a call of gsel refuses or fails with. str() is the library's message, __cause__ the error beneath.
    status     the code, such as -11; name is that of the code, such as "GSEL_ERR_PEER"
    operation  the call, such as "allreduce"
    rank       the rank that the error is about, or -1
    file, line, column, token   the place in the input, if any"""
    status, operation, rank, file, line, column, token = 0, "", -1, "", 0, 0, ""

    @property
    def name(self):
        return _lib.gsel_status_name(self.status).decode()


_CLASSES = {}
for _number, _names in (
        (-1, "Arg ValueError"), (-2, "NoMem MemoryError"), (-3, "Internal"), (-4, "Unsupported NotImplementedError"),
        (-5, "Version"), (-6, "Io"), (-7, "Parse ValueError"), (-8, "Config"), (-9, "NotFound LookupError"),
        (-10, "Plugin"), (-11, "Peer"), (-12, "Timeout TimeoutError"), (-13, "Mismatch"), (-14, "Aborted"),
        (-15, "Forked"), (-16, "Callback"), (-17, "Model"), (-18, "Program"), (-19, "State"), (-20, "Device"),
        (-101, "Syntax"), (-102, "Type"), (-103, "OutOfRange"), (-104, "Duplicate"), (-105, "UnknownDevice"),
        (-106, "Ambiguous"),
        (-107, "UnknownHost"), (-108, "Conflict"), (-109, "NoDevices"), (-110, "Busy"), (-111, "AlreadyInitialized"),
        (-112, "Permission"), (-113, "RankOverflow")):
    _name, *_bases = _names.split()
    _bases = tuple(getattr(_builtins, base) for base in _bases)  # TimeoutError is Python's as well
    _CLASSES[_number] = type(_name + "Error", (Error, *_bases), {"status": _number, "__module__": __name__})
    globals()[_name + "Error"] = _CLASSES[_number]


def _error(pointer, operation):
    error = _CLASSES.get(_lib.gsel_error_code(pointer), Error)(str(_lib.gsel_error_message(pointer)))
    error.status, error.rank, error.operation = _lib.gsel_error_code(pointer), _lib.gsel_error_rank(pointer), operation
    error.file, error.token = str(_lib.gsel_error_file(pointer)), str(_lib.gsel_error_token(pointer))
    error.line, error.column = _lib.gsel_error_line(pointer), _lib.gsel_error_column(pointer)
    cause = _lib.gsel_error_cause(pointer)
    if cause:
        error.__cause__ = _error(cause, operation)
    return error


def _refuse(operation, text):
    error = _CLASSES[-1](f"{operation}: {text}")
    error.operation = operation
    return error


def _call(name, *args):
    """Makes a fallible call; its error is raised."""
    pointer = _c.c_void_p()
    if getattr(_lib, name)(*args, _c.byref(pointer)):
        try:
            error = _error(pointer, name.partition("_")[2].replace("comm_", "").replace("trainer_", ""))
        finally:
            _lib.gsel_error_free(pointer)
        raise error


class _Handle:
    """An object of the library. It is released when nobody refers to it and all objects made from it are released, in
    whatever order the garbage collector finishes them. Calls get the handle itself, so that it lives while they run."""
    _lock = _threading.RLock()

    def __init__(self, create, free, *args, needs=(), after=()):
        self._as_parameter_, self._free, self._needs, self._users = _c.c_void_p(), free, needs, 1
        with self._lock:
            for handle in needs:
                handle._users += 1
        self._kept = []  # memory that the object uses
        _call(create, *args, _c.byref(self._as_parameter_), *after)

    def need_instead(self, before, need):
        """The object uses `need` from now on, and `before` no more."""
        with self._lock:
            need._users += 1
            self._needs = tuple(need if handle is before else handle for handle in self._needs)
        before.__del__()

    def __bool__(self):
        return bool(self._as_parameter_)

    @property
    def address(self):
        return self._as_parameter_.value

    def __del__(self):
        with self._lock:
            self._users -= 1
            unused = self._users == 0
        if unused:
            if self:
                self._free(self._as_parameter_)
            for handle in self._needs:
                handle.__del__()


class _Closable:
    """What holds a handle: closed by close(), by the end of its `with`, or when nobody refers to it."""
    _handle = None

    def close(self):
        self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def _open(self):
        handle = self._handle
        if handle is None:
            raise _refuse(type(self).__name__, "it is closed")
        return handle


# ---- calls that wait for other ranks -------------------------------------------------------------------------------


class _Helper(_threading.Thread):
    """Makes calls for the main thread. Idle ones wait in a list for the next call."""
    idle = []

    def __init__(self):
        super().__init__(name="gsel", daemon=True)
        self.calls, self.results = _queue.SimpleQueue(), _queue.SimpleQueue()
        self.start()

    def run(self):
        while True:
            call = self.calls.get()
            if call is None:
                return
            try:
                self.results.put((call(), None))
            except BaseException as error:
                self.results.put((None, error))
            call = None


_os.register_at_fork(after_in_child=_Helper.idle.clear)


def _wait(call, comm=None):
    """Makes a call that may take long. In the main thread it runs on a helper: Python runs signal handlers in the main
    thread alone, between two steps of the interpreter or while it waits for a queue. If a handler raises, the call is
    ended by an abort of comm, a handle; without one it continues in the background until it ends."""
    if _threading.current_thread() is not _threading.main_thread():
        return call()
    try:
        helper = _Helper.idle.pop()
    except IndexError:
        helper = _Helper()
    end = object()
    try:
        helper.calls.put(call)
        result, error = helper.results.get()
    except BaseException:
        if comm is not None:
            _lib.gsel_comm_abort(comm, _text("interrupted"))
            helper.calls.put(lambda: end)  # answered once the call has ended, and also if it was never put
            while True:
                try:
                    if helper.results.get()[0] is end:
                        break
                except BaseException:
                    continue  # the next Ctrl-C: the call is about to end
            _Helper.idle.append(helper)
        else:
            helper.calls.put(None)
        raise
    _Helper.idle.append(helper)
    if error is not None:
        raise error
    return result


# ---- memory --------------------------------------------------------------------------------------------------------


class _DLTensor(_c.Structure):
    _fields_ = [("data", _c.c_void_p), ("device", _Device), ("ndim", _c.c_int32), ("code", _c.c_uint8),
                ("bits", _c.c_uint8), ("lanes", _c.c_uint16), ("shape", _c.c_void_p), ("strides", _c.c_void_p),
                ("byte_offset", _c.c_uint64)]


class _DLVersioned(_c.Structure):
    _fields_ = [("major", _c.c_uint32), ("minor", _c.c_uint32), ("context", _c.c_void_p), ("deleter", _FREE),
                ("flags", _c.c_uint64), ("tensor", _DLTensor)]


class _DLManaged(_c.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", _c.c_void_p), ("deleter", _FREE)]


_capsule_new = _c.PYFUNCTYPE(_c.py_object, _c.c_void_p, _c.c_char_p, _c.c_void_p)(("PyCapsule_New", _c.pythonapi))
_capsule_pointer = _c.PYFUNCTYPE(_c.c_void_p, _c.c_void_p, _c.c_char_p)(("PyCapsule_GetPointer", _c.pythonapi))
_capsule_valid = _c.PYFUNCTYPE(_c.c_int, _c.c_void_p, _c.c_char_p)(("PyCapsule_IsValid", _c.pythonapi))
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_exported = {}  # what somebody else's tensor refers to, until its deleter is called
_keys = _itertools.count(1)


@_FREE
def _release(key):
    _exported.pop(key, None)


@_FREE
def _delete_managed(address):
    versioned = _DLVersioned.from_address(_exported.pop(address).context)
    versioned.deleter(_c.addressof(versioned))


@_c.PYFUNCTYPE(None, _c.c_void_p)
def _delete_capsule(capsule):
    for name, layout in ((_PLAIN, _DLManaged), (_VERSIONED, _DLVersioned)):
        if _capsule_valid(capsule, name):  # nobody took the tensor, which would have renamed the capsule
            address = _capsule_pointer(capsule, name)
            layout.from_address(address).deleter(address)


def _shape_of(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _dtype_of(dtype):
    if dtype in _DTYPE_NAMES:
        return dtype
    if dtype not in _DTYPES:
        raise _refuse("dtype", f"{dtype!r} is none of {', '.join(_DTYPES)}")
    return _DTYPES[dtype]


class Tensor:
    """Memory of the library: of Communicator.alloc, or a tensor of a piece of work, which is valid until the work is
    complete. numpy.asarray(tensor) and torch.from_dlpack(tensor) are views of it; nothing is copied.
    shape  sizes in elements
    dtype  the name of the type, such as "f32" """

    def __init__(self, raw, owner, device=(1, 0)):
        self._raw, self._owner, self._where = raw, owner, _Device(*device)
        self.shape, self.dtype = tuple(raw.dims[:raw.n_dims]), _DTYPE_NAMES[raw.dtype]

    def __repr__(self):
        return f"gsel.Tensor({self.shape}, {self.dtype})"

    @property
    def __array_interface__(self):
        for typestr, number in _TYPESTR.items():
            if number == self._raw.dtype and self._where.type == 1:
                return {"version": 3, "typestr": typestr, "shape": self.shape, "data": (self._raw.data, False)}
        raise AttributeError(f"NumPy has no {self.dtype} on device {self._where.type}")

    def __dlpack_device__(self):
        return (self._where.type, self._where.id)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        made, key = _c.c_void_p(), next(_keys)
        _exported[key] = self
        try:
            _call("gsel_tensor_to_dlpack", _c.byref(self._raw), _c.byref(self._where), _c.cast(_release, _c.c_void_p),
                  key, _c.byref(made))
        except Error:
            del _exported[key]
            raise
        name, address = _VERSIONED, made.value
        if not max_version or max_version[0] < 1:  # who asks for no version knows the layout before 1.0 alone
            managed = _DLManaged(_DLVersioned.from_address(address).tensor, address, _delete_managed)
            name, address = _PLAIN, _c.addressof(managed)
            _exported[address] = managed
        return _capsule_new(address, name, _c.cast(_delete_capsule, _c.c_void_p))


class _View:
    """Where the elements of somebody's object are, for the time of a call. `owner` keeps them."""

    def __init__(self, address, count, dtype, owner, writable=True):
        self.address, self.count, self.dtype, self.owner, self.writable = address, count, dtype, owner, writable

    def at(self, element):
        return self.address + element * _lib.gsel_dtype_bytes(self.dtype) if self.address else None


def _view(value, operation, stream=None):
    if isinstance(value, Tensor):
        return _View(value._raw.data, value._raw.n_elems, value._raw.dtype, value)
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        dtype, count = _TYPESTR.get(interface["typestr"]), 1
        if dtype is None:
            raise _refuse(operation, f"an array of {interface['typestr']}; gsel has {' '.join(_TYPESTR)}")
        for size in interface["shape"]:
            count *= size
        if interface.get("strides") is not None and count:
            raise _refuse(operation, "the array is not contiguous; numpy.ascontiguousarray makes one that is")
        return _View(interface["data"][0], count, dtype, value, not interface["data"][1])
    if hasattr(value, "__dlpack__"):
        on_host = value.__dlpack_device__()[0] == 1
        capsule = value.__dlpack__() if on_host else value.__dlpack__(stream=stream or 1)
        plain, raw = _capsule_valid(id(capsule), _PLAIN), _Tensor()
        address = _capsule_pointer(id(capsule), _PLAIN if plain else _VERSIONED)
        _call("gsel_tensor_from_dlpack" + ("" if plain else "_versioned"), address, _c.byref(raw), None)
        writable = plain or not _DLVersioned.from_address(address).flags & 1
        return _View(raw.data, raw.n_elems, raw.dtype, capsule, writable)
    try:
        memory = memoryview(value)
    except _builtins.TypeError:
        raise _refuse(operation, f"{type(value).__name__} is no array: it has no __array_interface__, __dlpack__ or "
                                 "buffer") from None
    kind = memory.format.lstrip("@=<")
    dtype = {"e": F16, "f": F32, "d": F64, "c": U8}.get(kind) or (
        _DTYPES.get(("i" if kind.islower() else "u") + str(8 * memory.itemsize)) if kind.lower() in "bhilq" else None)
    if dtype is None or not memory.contiguous:
        raise _refuse(operation, f"a buffer of format {memory.format!r}, contiguous {memory.contiguous}")
    chars = _c.c_char * memory.nbytes
    owner = chars.from_buffer_copy(memory) if memory.readonly else chars.from_buffer(memory)
    return _View(_c.addressof(owner), memory.nbytes // memory.itemsize, dtype, owner, not memory.readonly)


# ---- selection -----------------------------------------------------------------------------------------------------


class Selection(_Closable):
    """The devices that gsel_resolve chose, and why. str() is the table that `gsel resolve` prints."""

    def __str__(self):
        return str(_lib.gsel_selection_text(self._open))

    def dict(self):
        """The same as data: status, devices, env, warnings, trace, candidates, as `gsel resolve --json` prints it."""
        return _json.loads(str(_lib.gsel_selection_json(self._open)))

    def env(self, local_rank=-1):
        """Variables that make a child process see this selection; local_rank r: device r of it alone."""
        variables, n = _c.c_void_p(), _c.c_size_t()
        _call("gsel_selection_env", self._open, local_rank, _c.byref(variables), _c.byref(n))
        found = (_EnvVar * n.value).from_address(variables.value) if n.value else ()
        return {str(variable.name): str(variable.value) for variable in found}


def _recorded(inventory):
    if inventory is None:
        return None
    if isinstance(inventory, dict):
        text = _text(_json.dumps(inventory))
        return _Handle("gsel_inventory_parse", _lib.gsel_inventory_free, text, _text("inventory"))
    return _Handle("gsel_inventory_load", _lib.gsel_inventory_free, _text(inventory))


def resolve(devices=None, *, inventory=None, env=None, per_rank=False, **options):
    """Selects devices.
    devices    a spec, such as "count:2 & free>=20GiB"; None: every visible accelerator of one vendor, or the CPU
    inventory  None: this machine; otherwise the path of a recorded one, or its content as a dict
    env        variables to honour; None: those of this process
    options    accelerator, compat, order, include, exclude, hostfile, hostfile_text: as `gsel resolve --help` says"""
    recorded = _recorded(inventory)
    variables = [_EnvVar(_text(name), _text(value)) for name, value in (env or {}).items()]
    variables = (_EnvVar * len(variables))(*variables)
    flags = (RESOLVE_PER_RANK if per_rank else 0) | (RESOLVE_NO_ENV if env == {} else 0)
    given = _ResolveOptions(inventory=recorded and recorded.address, env=_c.addressof(variables) if env else None,
                            n_env=len(variables), devices=_text(devices), flags=flags,
                            **{name: _text(value) for name, value in options.items()})
    selection = Selection()
    given.borrows = recorded, variables
    selection._handle = _wait(lambda: _Handle("gsel_resolve", _lib.gsel_selection_free, _c.byref(given)))
    return selection


class Plan(_Closable):
    """Which strategy, will it fit, how fast, and why (docs/plan.md). str() is the text that `gsel plan` prints.
    model      a config.json of the Hugging Face hub, or a list of layers: its text, or its content as a dict
    inventory  used where no cluster is given: as for resolve
    estimate   True: memory of a rank under each strategy alone, without a search and without candidates
    options    cluster ("8xH100"), nodes, batch, sequence, fixed, and more: the fields of gsel_plan_options"""

    def __init__(self, model, *, inventory=None, estimate=False, **options):
        recorded = _recorded(inventory)
        text = _text(_json.dumps(model) if isinstance(model, dict) else model)
        options = {name: _text(value) if isinstance(value, str) else value for name, value in options.items()}
        given = _PlanOptions(model=text, inventory=recorded and recorded.address, **options)
        given.borrows, create = recorded, "gsel_plan_estimate" if estimate else "gsel_plan_create"
        self._handle = _wait(lambda: _Handle(create, _lib.gsel_plan_free, _c.byref(given)))

    def __str__(self):
        handle = self._open
        return _wait(lambda: str(_lib.gsel_plan_text(handle)))

    def dict(self):
        """The same as data, with "candidates", fastest first, as `gsel plan --json` prints it."""
        return _json.loads(str(_lib.gsel_plan_json(self._open)))

    def toml(self, candidate=0):
        """A candidate as gsel.toml, which Config(text=...) takes."""
        out = _Str()
        _call("gsel_plan_toml", self._open, candidate, _c.byref(out))
        return str(out)


class Config(_Closable):
    """gsel.toml: from a file, from text, or, without both, what GSEL_CONFIG names. config["train.batch"] reads a key as
    text and sets it; None removes it."""

    def __init__(self, path=None, *, text=None):
        how = ("gsel_config_load", _text(path)) if text is None else ("gsel_config_parse", _text(text), _text("config"))
        self._handle = _Handle(how[0], _lib.gsel_config_free, *how[1:])

    def __getitem__(self, key):
        value = _lib.gsel_config_get(self._open, _text(key))
        if value.data is None:
            raise KeyError(key)
        return str(value)

    def __setitem__(self, key, value):
        _call("gsel_config_set", self._open, _text(key), _text(value if value is None else str(value)))


def _config(value):
    return value if value is None or isinstance(value, Config) else Config(value)


# ---- communication -------------------------------------------------------------------------------------------------


class Op(_Closable):
    """An operation of the program's: function(accumulated, following) gets two tensors of one dimension and writes the
    result to the first. Every rank makes its own under the same name. record: elements that are never separated."""

    number, failure = 0, None  # what the function raised last

    def __init__(self, name, function, record=1):

        def run(accumulated, following, count, dtype, _):
            try:
                function(*(Tensor(_Tensor(at, count, (count,), 1, dtype), None) for at in (accumulated, following)))
                return 0
            except BaseException as error:
                self.failure = error
                return -16
        number, self._run = _c.c_int32(), _OP(run)
        _call("gsel_op_create", _text(name), record, _c.cast(self._run, _c.c_void_p), None, None, _c.byref(number))
        self.number = number.value

    def close(self):
        number, self.number = self.number, 0
        _lib.gsel_op_free(number)

    __del__ = close


def unique_id(listen=False):
    """128 bytes that identify a communicator; one rank makes them, and the program passes them to the others. With listen
    ranks on several hosts meet by them: this process listens from now on, and joins as rank 0 with them."""
    made = _c.create_string_buffer(128)
    _call("gsel_unique_id_listen" if listen else "gsel_unique_id_create", made)
    return made.raw


class Communicator(_Closable):
    """Joins ranks, which are processes or threads of one host or of several; returns once all have come.
    rank, size    None: both from the environment, as `gsel run`, torchrun, mpirun and srun set it
    id            bytes of unique_id(), or text: ranks that give the same text, such as a name of the job, meet
    rendezvous    where ranks of several hosts meet, such as "tcp://10.0.0.1:29500"; None: as the environment says
    config        a Config or the path of one; None: the file that GSEL_CONFIG names
    timeout       bound on each later call, seconds; join_timeout: on joining
    accelerator   such as "cuda:1": arrays are of that device; "cuda | cpu": of the host where no rank has one; transport: how its memory travels
    name, device, order, flags   as in gsel/comm.h
    Arrays are contiguous; recv=None means in place. Calls return the array that holds the result. timeout: seconds."""

    def __init__(self, rank=None, size=None, id=None, *, config=None, timeout=0, join_timeout=0, accelerator=None,
                 transport=None, name=None, device=None, order=ORDER_RANKS, flags=0, interruptible=True,
                 rendezvous=None):
        if (rank is None) != (size is None):
            raise _refuse("Communicator", "rank and size belong together: give both or none")
        options = self._options("Communicator", rank or 0, size or 0, id, config, timeout=timeout,
                                join_timeout=join_timeout, accelerator=accelerator, transport=transport, name=name,
                                device=device, order=order, flags=flags, rendezvous=rendezvous)
        kind, _, index = (accelerator or "").partition("|")[0].strip().partition(":")
        self._interruptible, self._stream = interruptible, None
        self._handle = self._waiting(lambda: _Handle("gsel_comm_init", _lib.gsel_comm_free, _c.byref(options)), None)
        is_on_device = kind == "cuda" and not _lib.gsel_comm_set_stream(self._handle, None, None)
        self._where = (2, int(index or 0)) if is_on_device else (1, 0)  # as DLPack counts devices

    @staticmethod
    def _options(operation, rank, size, id, config, *, timeout=0, join_timeout=0, accelerator=None, transport=None,
                 name=None, device=None, order=ORDER_RANKS, flags=0, rendezvous=None):
        if isinstance(id, str):
            id = _hashlib.sha512(id.encode()).digest() + _hashlib.sha512(b"gsel" + id.encode()).digest()
        if id is not None and len(id) != 128:
            raise _refuse(operation, f"an id of {len(id)} bytes; unique_id() makes the 128 that are needed")
        config = _config(config)
        id = _c.create_string_buffer(id, 128) if id is not None else None
        options = _CommOptions(
            rank=rank, world_size=size, id=id and _c.addressof(id), timeout_s=timeout, join_timeout_s=join_timeout,
            config=config and config._open.address, device=_text(device), order=order, flags=flags, name=_text(name),
            accelerator=_text(accelerator), transport=_text(transport), rendezvous=_text(rendezvous))
        options.borrows = id, config
        return options

    def _waiting(self, call, comm):
        return _wait(call, comm) if self._interruptible else call()

    def _derived(self, create, *args):
        made = Communicator.__new__(Communicator)
        made._interruptible, made._where, made._stream, handle = self._interruptible, self._where, None, self._open
        made._handle = self._waiting(lambda: _Handle(create, _lib.gsel_comm_free, handle, *args), handle)
        return made if made._handle else None

    @property
    def rank(self):
        return _lib.gsel_comm_rank(self._open)

    @property
    def size(self):
        return _lib.gsel_comm_world_size(self._open)

    @property
    def name(self):
        return str(_lib.gsel_comm_name(self._open))

    def abort(self, reason="interrupted"):
        """Breaks the communicator on every rank; calls under way end with AbortedError. From any thread."""
        _lib.gsel_comm_abort(self._open, _text(reason))

    def split(self, colour, key=0):
        """A communicator of the ranks with this colour, ordered by (key, rank); None for a colour below 0."""
        return self._derived("gsel_comm_split", colour, key)

    def dup(self):
        return self._derived("gsel_comm_dup")

    def shrink(self):
        """After a failure: a communicator of the ranks that still answer."""
        return self._derived("gsel_comm_shrink")

    def grow(self, size, id, *, config=None, **options):
        """A communicator of `size` ranks: these keep their numbers, the others join by Communicator(rank, size, id).
        options: those of Communicator."""
        larger = self._options("grow", 0, size, id, config, **options)
        return self._derived("gsel_comm_grow", _c.byref(larger))

    def merge(self, high, size, id, *, config=None, **options):
        """One communicator of this one and another one, whose ranks merge it with the same id. size: of both. The
        ranks of the one that is not high keep their numbers, those of the other one follow."""
        larger = self._options("merge", 0, size, id, config, **options)
        return self._derived("gsel_comm_merge", int(high), _c.byref(larger))

    def resync(self):
        """Makes the communicator usable again after a mismatch, timeout or abort. Every rank calls it."""
        handle = self._open
        self._waiting(lambda: _call("gsel_comm_resync", handle), handle)

    def set_timeout(self, seconds):
        _call("gsel_comm_set_timeout", self._open, seconds)

    def set_stream(self, stream):
        """With an accelerator: the stream of later calls, as a number (torch.cuda.Stream().cuda_stream)."""
        _call("gsel_comm_set_stream", self._open, stream)
        self._stream = stream

    def synchronize(self):
        handle = self._open
        self._waiting(lambda: _call("gsel_comm_synchronize", handle), handle)

    def alloc(self, shape, dtype="f32"):
        """A tensor of zeros in memory that all ranks map, or of the accelerator: calls copy nothing on the way."""
        shape, dtype, count = _shape_of(shape), _dtype_of(dtype), 1
        for size in shape:
            count *= size
        handle, n_bytes = self._open, count * _lib.gsel_dtype_bytes(dtype)
        memory = _Handle("gsel_mem_alloc", lambda memory: _lib.gsel_mem_free(handle, memory, None), handle, n_bytes,
                         needs=(handle,))
        return Tensor(_Tensor(memory.address, count, shape, len(shape), dtype), memory, self._where)

    def _run(self, operation, kind, send, recv, count, timeout, op=0, **fields):
        number = op.number if isinstance(op, Op) else op
        call = _Collective(kind=kind, send=send, recv=recv, count=count, op=number, timeout_s=timeout or 0, **fields)
        handle = self._open
        try:
            self._waiting(lambda: _call("gsel_comm_run", handle, _c.byref(call)), handle)
        except Error as error:
            error.operation = operation
            if isinstance(op, Op) and op.failure is not None:
                error.__cause__, op.failure = op.failure, None
            raise

    def _views(self, operation, send, recv):
        send = _view(send, operation, self._stream)
        recv = send if recv is None else _view(recv, operation, self._stream)
        if send.dtype != recv.dtype:
            raise _refuse(operation, f"send is {_DTYPE_NAMES[send.dtype]}, recv is {_DTYPE_NAMES[recv.dtype]}")
        if not recv.writable:
            raise _refuse(operation, "the array for the result is read only")
        return send, recv

    def _parts(self, operation, whole, counts):
        """Elements of each rank's part, and where that of this rank begins."""
        size, rank = self.size, self.rank
        parts = list(counts) if counts is not None else [whole.count // size] * size
        if sum(parts) != whole.count or len(parts) != size:
            raise _refuse(operation, f"{whole.count} elements are no {size} parts of {counts or 'equal size'}")
        return (_c.c_uint64 * size)(*parts), sum(parts[:rank]), parts[rank]

    def barrier(self, timeout=None):
        self._run("barrier", COLLECTIVE_BARRIER, None, None, 0, timeout)

    def allreduce(self, send, recv=None, op=SUM, timeout=None):
        if isinstance(send, (int, float)):
            cell = _array.array("q" if isinstance(send, int) else "d", [send])
            return self.allreduce(cell, None, op, timeout)[0]
        s, r = self._views("allreduce", send, recv)
        if s.count != r.count:
            raise _refuse("allreduce", f"send has {s.count} elements, recv {r.count}")
        self._run("allreduce", COLLECTIVE_ALLREDUCE, s.address, r.address, s.count, timeout, op, dtype=s.dtype)
        return send if recv is None else recv

    def reduce_scatter(self, send, recv=None, op=SUM, counts=None, timeout=None):
        """recv = this rank's part of the reduced send; in place it stays where it is. counts: elements per rank."""
        s, r = self._views("reduce_scatter", send, recv)
        parts, begin, mine = self._parts("reduce_scatter", s, counts)
        if recv is not None and r.count != mine:
            raise _refuse("reduce_scatter", f"recv has {r.count} elements, this rank's part {mine}")
        kind = COLLECTIVE_REDUCE_SCATTER if counts is None else COLLECTIVE_REDUCE_SCATTERV
        self._run("reduce_scatter", kind, s.address, s.at(begin) if recv is None else r.address, mine, timeout, op,
                  dtype=s.dtype, recv_counts=_c.addressof(parts))
        return send if recv is None else recv

    def all_gather(self, send, recv=None, counts=None, timeout=None):
        """recv = send of all ranks, in rank order; in place, send is the whole, with this rank's part in its place."""
        s, r = self._views("all_gather", send, recv)
        parts, begin, mine = self._parts("all_gather", r, counts)
        if recv is not None and s.count != mine:
            raise _refuse("all_gather", f"send has {s.count} elements, this rank's part of recv {mine}")
        kind = COLLECTIVE_ALLGATHER if counts is None else COLLECTIVE_ALLGATHERV
        self._run("all_gather", kind, r.at(begin) if recv is None else s.address, r.address, mine, timeout,
                  dtype=s.dtype, recv_counts=_c.addressof(parts))
        return send if recv is None else recv

    def broadcast(self, array, root=0, timeout=None):
        s, _ = self._views("broadcast", array, None)
        self._run("broadcast", COLLECTIVE_BROADCAST, s.address, s.address, s.count, timeout, dtype=s.dtype, root=root)
        return array

    def send(self, array, to, tag=0, timeout=None):
        s = _view(array, "send", self._stream)
        self._run("send", COLLECTIVE_SEND, s.address, None, s.count, timeout, dtype=s.dtype, root=to, tag=tag)

    def recv(self, array, source=ANY_RANK, tag=ANY_TAG, timeout=None):
        """Returns (source, tag, elements) of the message that was received."""
        r, message = self._views("recv", array, None)[0], _Message()
        self._run("recv", COLLECTIVE_RECV, None, r.address, r.count, timeout, dtype=r.dtype, root=source, tag=tag,
                  received=_c.addressof(message))
        return message.source, message.tag, message.count


# ---- training ------------------------------------------------------------------------------------------------------


class Model(_Closable):
    """A model for the pull driver: parameters, values and layers, each under an id that its method returns. Layers are
    added in the order in which they run. Options are the other fields of gsel_param_options and its like."""

    def __init__(self):
        self._handle = _Handle("gsel_model_create", _lib.gsel_model_free)
        self.params, self.values, self.layers, self._kept = [], [], [], []

    def _add(self, kind, names, name, shape, options):
        made = _c.c_int32()
        if shape is not None:
            dims = (_c.c_int64 * len(_shape_of(shape)))(*_shape_of(shape))
            options.dims, options.n_dims = _c.addressof(dims), len(dims)
        _call("gsel_model_add_" + kind, self._open, _c.byref(options), _c.byref(made))
        names.append(name)
        return made.value

    def param(self, name, shape, init="zeros", scale=0.0, dtype="f32", **options):
        """init: "zeros", "ones", "normal" (deviation `scale`), or an array of f32 with the first values."""
        if isinstance(init, str):
            options["init"] = {"zeros": INIT_ZEROS, "ones": INIT_ONES, "normal": INIT_NORMAL}[init]
        else:
            first_values = _view(init, "param")
            if first_values.dtype != F32:
                raise _refuse("param", f"the first values of {name} are {_DTYPE_NAMES[first_values.dtype]}, not f32")

            def fill(dst, first, count, seed, _):
                if first + count > first_values.count:
                    return -1
                _c.memmove(dst, first_values.at(first), 4 * count)
                return 0
            self._kept.append(_INIT(fill))
            options.update(init=INIT_CALLBACK, init_fn=_c.cast(self._kept[-1], _c.c_void_p))
        return self._add("param", self.params, name, shape, _ParamOptions(
            name=_text(name), init_scale=scale, dtype=_dtype_of(dtype), **options))

    def value(self, name, shape=(), dtype="f32", flags=0, **options):
        """shape: that of one sample; the tensors of work have the samples as their first dimension."""
        return self._add("value", self.values, name, shape, _ValueOptions(
            name=_text(name), dtype=_dtype_of(dtype), flags=flags, **options))

    def layer(self, name, inputs, outputs, params=(), flags=0, **options):
        i, o, p = ((_c.c_int32 * len(ids))(*ids) for ids in (inputs, outputs, params))
        return self._add("layer", self.layers, name, None, _LayerOptions(
            name=_text(name), inputs=_c.addressof(i), outputs=_c.addressof(o), params=_c.addressof(p), n_inputs=len(i),
            n_outputs=len(o), n_params=len(p), flags=flags, **options))


def _fields(raw):
    """What the library has filled in, without what a struct says of itself."""
    return _types.SimpleNamespace(**{name: getattr(raw, name) for name, _ in raw._fields_
                                     if name != "struct_size" and not name.startswith("reserved")})


class Work:
    """A piece of work: a layer's forward or backward, or an input to fill. Its tensors are valid until it is complete.
    kind        INPUT, FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT or BACKWARD
    layer       name of the layer, or of the value to fill; dst: where to write that value
    sample_ids  global numbers of the samples, the same under every strategy; microbatch: its number
    params, inputs, outputs, d_outputs, d_inputs, d_params   lists of Tensor; None for what is not read or not wanted
    accumulate  whether d_params are added to, rather than overwritten; evaluating: whether no training follows
    call, input the structs of gsel/model.h and gsel/train.h with everything else"""

    def __init__(self, trainer, raw):
        self.kind, self._status = raw.kind, 0
        self.call = _Call.from_address(raw.call) if raw.call else None
        self.input = _DataRequest.from_address(raw.input) if raw.input else None
        of = self.call or self.input
        self.microbatch, n = of.microbatch, of.n_samples
        self.sample_ids = (_c.c_int64 * n).from_address(of.sample_ids)[:] if n else []
        names = trainer._model
        self.layer = names.layers[of.layer] if self.call else names.values[of.value]

    dst = property(lambda self: Tensor(_Tensor.from_buffer_copy(self.input.dst), None))
    accumulate = property(lambda self: bool(self.call.accumulate))
    evaluating = property(lambda self: bool(self.call.evaluating))

    def __getattr__(self, name):
        if name not in ("params", "inputs", "outputs", "d_outputs", "d_inputs", "d_params") or self.call is None:
            raise AttributeError(name)
        address, n = getattr(self.call, name), getattr(self.call, "n_" + name.replace("d_", ""))
        raws = (_Tensor * n).from_address(address) if address else ()
        return [Tensor(_Tensor.from_buffer_copy(raw), None) if raw.data else None for raw in raws]

    def no_samples(self):
        """For an input: this rank has no samples left."""
        self._status = NO_SAMPLES


class Trainer(_Closable):
    """Trains the model under the strategy that config names (a Config, a path, or None: the file of GSEL_CONFIG).

        for work in trainer.step():
            ...                                       # compute it; the next turn of the loop completes it
        print(trainer.report().loss)

    A loop that is left by an exception or a break fails the step on every rank."""

    def __init__(self, comm, model, config=None):
        self._make("gsel_trainer_create", comm, model, config)

    def _make(self, create, comm, model, config, *more, after=()):
        config = Config() if config is None else _config(config)
        options = _TrainerOptions(config=config._open.address)
        self._comm, self._model = comm, model
        needs = comm._open, model._open
        self._handle = comm._waiting(lambda: _Handle(
            create, _lib.gsel_trainer_free, *needs, _c.byref(options), *more, needs=needs, after=after), needs[0])

    @classmethod
    def join(cls, comm, model, config=None, folder=None):
        """The part of a rank that had no trainer in rebind() of the others: makes one, which takes the state that they
        have. Returns the trainer and what rebind() returns."""
        made, rebind, raw = cls.__new__(cls), _RebindOptions(folder=_text(folder)), _RebindReport()
        made._make("gsel_trainer_join", comm, model, config, _c.byref(rebind), after=(_c.byref(raw),))
        return made, _fields(raw)

    def rebind(self, comm, config=None, folder=None):
        """Moves the trainer to another communicator, such as one of shrink() or grow(), and takes the newest state that
        its ranks have whole together. All ranks of comm call it alike; those that are new call join(). config: for the
        new ranks; None: as before. folder: of checkpoints, in case the ranks do not have the state. Returns the fields
        of gsel_rebind_report. After an error the trainer is what it was."""
        config = None if config is None else _config(config)
        options = _RebindOptions(config=None if config is None else config._open.address, folder=_text(folder))
        raw, handle, to = _RebindReport(), self._open, comm._open

        def move():
            _call("gsel_trainer_rebind", handle, to, _c.byref(options), _c.byref(raw))
            handle.need_instead(handle._needs[0], to)
            self._comm = comm
        comm._waiting(move, to)
        return _fields(raw)

    def step(self):
        """Iterates over the work of one step."""
        handle, raw = self._open, _Work()
        while True:
            self._comm._waiting(lambda: _call("gsel_trainer_next_work", handle, _c.byref(raw)), handle._needs[0])
            if raw.kind == 0:
                return
            work = Work(self, raw)
            try:
                yield work
            except BaseException:
                why = _text(f"the program left its loop at {work.layer}")
                _lib.gsel_trainer_complete(handle, raw.ticket, _CLASSES[-16].status, why, None)
                raise
            _call("gsel_trainer_complete", handle, raw.ticket, work._status, _text(None))

    def evaluate(self, first_sample):
        """The same for an evaluation of one batch; report() is then that of the evaluation, once."""
        _call("gsel_trainer_begin_evaluation", self._open, first_sample)
        return self.step()

    def report(self):
        """What the last step did: the fields of gsel_step_report."""
        raw = _StepReport()
        _call("gsel_trainer_report", self._open, _c.byref(raw))
        return _fields(raw)

    def _read(self, function, param, out):
        into, handle = _view(out, function), self._open
        if into.dtype != F32 or not into.writable:
            raise _refuse(function, "the array for the result is not f32, or read only")
        address, n_bytes = into.address, 4 * into.count
        self._comm._waiting(lambda: _call(function, handle, param, address, n_bytes), handle._needs[0])
        return out

    def read_param(self, param, out):
        """Copies the whole parameter to out, as f32. All ranks call it alike."""
        return self._read("gsel_trainer_read_param", param, out)

    def read_gradient(self, param, out):
        """Copies the gradient of the last step, of the mean loss, to out. All ranks call it alike."""
        return self._read("gsel_trainer_read_gradient", param, out)

    def _checkpoint(self, function, path, *options):
        raw, text, handle = _CheckpointReport(), _text(path), self._open
        self._comm._waiting(lambda: _call(function, handle, text, *options, _c.byref(raw)), handle._needs[0])
        return _fields(raw)

    def save(self, folder, keep=0):
        """Saves the trainer between steps as folder/step-NNNNNNNNNNNN. With keep, older whole checkpoints of the folder are
        removed, so that so many are left. All ranks call it alike."""
        options = _CheckpointOptions(keep=keep)
        return self._checkpoint("gsel_trainer_save", folder, _c.byref(options))

    def save_begin(self, folder, keep=0):
        """save() in the background: returns when the state of this rank is copied to host memory, and a thread of the
        library writes the copy while training goes on. One at a time. All ranks call it alike."""
        options = _CheckpointOptions(keep=keep)
        return self._checkpoint("gsel_trainer_save_begin", folder, _c.byref(options))

    def save_state(self):
        """What became of save_begin(): SAVE_NONE, SAVE_UNDER_WAY, SAVE_DONE or SAVE_FAILED. report() has it as save."""
        return _lib.gsel_trainer_save_state(self._open)

    def save_wait(self):
        """Waits until the save in the background has ended, and takes its outcome; None if there is none to take. Ranks
        need not call it alike. Ctrl-C ends the wait, and the save goes on. The end of the trainer waits, too."""
        while self.save_state() == SAVE_UNDER_WAY:  # so that Ctrl-C ends the wait alone
            _time.sleep(0.002)
        if self.save_state() == SAVE_NONE:
            return None
        raw = _CheckpointReport()
        _call("gsel_trainer_save_wait", self._open, _c.byref(raw))
        return _fields(raw)

    def load(self, path):
        """Loads a checkpoint, or the newest of a folder of checkpoints, whatever strategy and number of ranks saved it.
        All ranks call it alike."""
        return self._checkpoint("gsel_trainer_load", path)

    def _weights(self, function, path, map, *dtype):
        raw, text, handle, map = _WeightsReport(), _text(path), self._open, _config(map)
        rules = map and map._open
        self._comm._waiting(lambda: _call(function, handle, text, rules, *dtype, _c.byref(raw)), handle._needs[0])
        return _types.SimpleNamespace(**{name: getattr(raw, name) for name, _ in raw._fields_[2:]})

    def load_weights(self, path, map=None):
        """Loads parameters from a safetensors file, or from a folder of a model hub, as [weights] of map says (a Config,
        a path, or None: the trainer's own). All ranks call it alike."""
        return self._weights("gsel_trainer_load_weights", path, map)

    def export_weights(self, path, map=None, dtype=F32):
        """Writes the parameters as one safetensors file, with the names and the layout of the map. All ranks call it
        alike."""
        return self._weights("gsel_trainer_export_weights", path, map, dtype)

    def set_learning_rate(self, rate):
        _call("gsel_trainer_set_learning_rate", self._open, rate)

    def state(self):
        """What the trainer holds: a State. All ranks call it alike, between steps."""
        return State(self)

    def add_state(self, name, array, scope=STATE_SHARED):
        """Adds a state of the program's own, which is saved and loaded with the trainer's: a save reads the array, a
        load writes it. The trainer refers to the array until its end. All ranks add the same entries.
        scope  STATE_SHARED: the same on every rank; STATE_OF_RANK: each rank's own, for as many ranks"""
        memory, handle = _view(array, "add_state"), self._open
        if not memory.writable:
            raise _refuse("add_state", f"the array of {name} is read only, and load writes it")
        n_bytes = memory.count * _lib.gsel_dtype_bytes(memory.dtype)
        _call("gsel_trainer_add_state", handle, _text(name), memory.address, n_bytes, scope)
        handle._kept.append(memory)


class State(_Closable):
    """What a trainer holds between steps, by name. Of use until its next step, evaluation, load or rebind."""

    def __init__(self, trainer):
        of = trainer._open
        self._trainer = trainer
        self._handle = trainer._comm._waiting(lambda: _Handle(
            "gsel_state_open", _lib.gsel_state_free, of, needs=(of,)), of._needs[0])

    def __len__(self):
        return _lib.gsel_state_count(self._open)

    def entry(self, i):
        """Tensor i: name such as "param:NAME" or "exp_avg:NAME", role (before the colon), param, shape in the model,
        dtype, and pieces, the number of its parts that this rank has."""
        raw = _StateEntry()
        _call("gsel_state_entry_at", self._open, i, _c.byref(raw))
        return _types.SimpleNamespace(name=str(raw.name), role=str(raw.role), param=raw.param, pieces=raw.n_pieces,
                                      shape=tuple(raw.shape[:raw.n_dims]), dtype=_DTYPE_NAMES[raw.dtype])

    def entries(self):
        return [self.entry(i) for i in range(len(self))]

    def own(self):
        """States of the program's own, in the order of add_state(): name, scope (STATE_SHARED or STATE_OF_RANK), and data,
        a copy of the bytes."""
        states = []
        for i in range(_lib.gsel_state_own_count(self._open)):
            raw = _StateOwn()
            _call("gsel_state_own_at", self._open, i, _c.byref(raw))
            states.append(_types.SimpleNamespace(
                name=str(raw.name), scope=raw.scope, data=_c.string_at(raw.data, raw.bytes) if raw.bytes else b""))
        return states

    def runs(self, i, piece):
        """A piece as a list of (offset in the whole tensor, offset in the piece, elements)."""
        handle, total = self._open, _c.c_int64()
        _call("gsel_state_runs", handle, i, piece, None, 0, _c.byref(total))
        raws = (_StateRun * total.value)()
        _call("gsel_state_runs", handle, i, piece, raws, total.value, None)
        return [(run.whole, run.local, run.count) for run in raws]

    def _floats(self, operation, array, written):
        view = _view(array, operation)
        if view.dtype != F32 or written and not view.writable:
            raise _refuse(operation, "the array is not f32" + (", or read only" if written else ""))
        return view

    def read_piece(self, i, piece, out, first=0):
        """Copies the elements of a piece from `first` on to out."""
        into = self._floats("read_piece", out, True)
        _call("gsel_state_read_piece", self._open, i, piece, first, into.count, into.address)
        return out

    def read(self, i, out, first=0, count=None):
        """Copies the elements of the whole tensor from `first` on to out, from the ranks that have them. All ranks call
        it alike. out: None, with count, on a rank that does not want them."""
        if out is None and count is None:
            raise _refuse("read", "out is None, so count is needed")
        into = None if out is None else self._floats("read", out, True)
        handle, comm = self._open, self._trainer._comm
        count, address = (into.count, into.address) if into else (count, None)
        comm._waiting(lambda: _call("gsel_state_read", handle, i, first, count, address), handle._needs[0]._needs[0])
        return out

    def write(self, i, array, first=0):
        """Sets the elements of the whole tensor from `first` on, as far as this rank has them; returns how many. All
        ranks write the same."""
        view, written = self._floats("write", array, False), _c.c_int64()
        _call("gsel_state_write", self._open, i, first, view.count, view.address, _c.byref(written))
        return written.value

    def numbers(self):
        """The numbers that training goes on from: the fields of gsel_training_numbers."""
        raw = _TrainingNumbers()
        _call("gsel_state_numbers", self._open, _c.byref(raw))
        return _fields(raw)

    def set_numbers(self, numbers):
        """Sets them. All ranks set the same."""
        _call("gsel_state_set_numbers", self._open, _c.byref(_TrainingNumbers(**vars(numbers))))
