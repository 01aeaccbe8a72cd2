"""test_gsel.py: bindings/python/gsel.py on one process: selection, errors, every call, memory, and the pull driver.
   GSEL_SOURCE  folder of the source, for data"""
import array
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

import gsel
import numpy as np
import train_mlp
from ranks import caught, ranks

SOURCE = os.environ["GSEL_SOURCE"]
MACHINE = SOURCE + "/tests/data/inventory/mixed4.json"


class Selecting(unittest.TestCase):
    def test_says_what_the_command_says(self):
        for spec in ("count:2", "name:*A100* | all", "cpu"):
            said = [subprocess.run(["gsel", "resolve", "--inventory", MACHINE, "--no-env", "--devices", spec, *more],
                                   capture_output=True, text=True, check=True).stdout for more in ([], ["--json"])]
            with gsel.resolve(spec, inventory=MACHINE, env={}) as selection:
                self.assertEqual(said[0], str(selection))
                self.assertEqual(json.loads(said[1]), selection.dict())
                self.assertTrue(all(c["reason"] for c in selection.dict()["candidates"]))

    def test_takes_the_machine_and_the_environment_as_data(self):
        with open(SOURCE + "/tests/data/inventory/l4x4.json") as file:
            machine = json.load(file)
        selection = gsel.resolve("visible:0", inventory=machine, env={"CUDA_VISIBLE_DEVICES": "1"}, accelerator="cuda")
        self.assertEqual([1], [d["index"] for d in selection.dict()["devices"]])
        self.assertIn("CUDA_VISIBLE_DEVICES", selection.env())
        self.assertEqual(selection.env(), selection.env(0))

    def test_error_has_class_and_place(self):
        error = caught(gsel.OutOfRangeError, gsel.resolve, "count:9", inventory=MACHINE, env={})
        self.assertEqual(("devices", 7, "9", -103, "GSEL_ERR_OUT_OF_RANGE", "resolve"),
                         (error.file, error.column, error.token, error.status, error.name, error.operation))
        self.assertIn("count:4 would work", str(error))
        self.assertIsInstance(error, gsel.Error)

    def test_config_reads_and_sets_keys(self):
        config = gsel.Config(text="[train]\nbatch = 8\n")
        config["train.batch"] = 16
        self.assertEqual("16", config["train.batch"])
        config["train.batch"] = None
        self.assertNotEqual("16", config["train.batch"])
        caught(KeyError, lambda: config["train.no_such_key"])
        self.assertEqual(2, caught(gsel.ConfigError, gsel.Config, text="[train]\nbatc = 8\n").line)


class Planning(unittest.TestCase):
    MODEL = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
             "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}

    def test_says_what_the_command_says(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w") as file:
                json.dump(self.MODEL, file)
            command = ["gsel", "plan", "--model", path, "--cluster", "8xH100", "--batch", "64", "--seq", "4096"]
            said = [subprocess.run(command + more, capture_output=True, text=True, check=True).stdout
                    for more in ([], ["--json"])]
            with gsel.Plan(self.MODEL, model_name=path, cluster="8xH100", batch=64, sequence=4096) as plan:
                self.assertEqual(said[0], str(plan))
                self.assertEqual(json.loads(said[1]), plan.dict())
                self.assertEqual("64", gsel.Config(text=plan.toml())["train.batch"])
                caught(gsel.ArgError, plan.toml, len(plan.dict()["candidates"]))
        caught(gsel.ArgError, str, plan)

    def test_estimates_and_names_what_is_wrong(self):
        estimate = gsel.Plan(self.MODEL, inventory=SOURCE + "/tests/data/inventory/a100x8.json",
                             sequence=4096, estimate=True)
        self.assertIn("ZeRO-3", str(estimate))
        caught(gsel.ArgError, estimate.toml)
        text = json.dumps(self.MODEL)
        self.assertIn("H1000", str(caught(gsel.ArgError, gsel.Plan, text, cluster="8xH1000")))
        self.assertIn("num_hidden_layers", str(caught(
            gsel.ParseError, gsel.Plan, {**self.MODEL, "num_hidden_layers": -1}, cluster="8xH100")))


class Calling(unittest.TestCase):
    def test_collectives(self):
        def run(comm):
            n, me = comm.size, comm.rank
            x = np.arange(6, dtype=np.float64).reshape(2, 3) + me
            out = np.empty_like(x)
            self.assertIs(out, comm.allreduce(x, out))
            np.testing.assert_array_equal(out, 3 * np.arange(6).reshape(2, 3) + 3)
            self.assertIs(x, comm.allreduce(x, op=gsel.MAX, timeout=20))
            np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3) + 2)
            self.assertEqual((3, 4.5), (comm.allreduce(me), comm.allreduce(1.5)))
            rows, part = np.arange(6, dtype=np.int32), np.empty(2, np.int32)
            comm.reduce_scatter(rows, part)
            np.testing.assert_array_equal(part, 3 * rows[2 * me:2 * me + 2])
            comm.reduce_scatter(rows)
            np.testing.assert_array_equal(rows[2 * me:2 * me + 2], part)
            counts, whole = [1, 0, 3], np.zeros(4, np.uint8)
            comm.all_gather(np.full(counts[me], me, np.uint8), whole, counts=counts)
            np.testing.assert_array_equal(whole, [0, 2, 2, 2])
            mine = comm.reduce_scatter(np.ones(4, np.float32), np.empty(counts[me], np.float32), counts=counts)
            np.testing.assert_array_equal(mine, [3] * counts[me])
            whole = np.full(n, me, np.float16)
            np.testing.assert_array_equal(comm.all_gather(whole), range(n))
            plain = array.array("q", [me, 7])
            self.assertEqual([2, 7], list(comm.broadcast(plain, root=2)))
            raw = bytearray([me])
            self.assertEqual(bytearray(3), comm.all_gather(bytes(1), bytearray(3)))
            comm.allreduce(raw)
            self.assertEqual(bytearray([3]), raw)
            comm.barrier(timeout=20)
        ranks(3, run)

    def test_messages(self):
        def run(comm):
            if comm.rank == 0:
                comm.send(b"late", 1, tag=5)
                return comm.send(np.arange(3), 1, tag=4)
            got, text = np.empty(3, np.int64), bytearray(9)
            self.assertEqual((0, 4, 3), comm.recv(got, 0, tag=4))
            self.assertEqual([0, 1, 2], list(got))
            self.assertEqual((0, 5, 4), comm.recv(text))
            self.assertEqual(b"late", text[:4])
        ranks(2, run)

    def test_refuses_what_is_no_such_array(self):
        def run(comm):
            for text, call in (("read only", lambda: comm.broadcast(b"abc")),
                               ("contiguous", lambda: comm.allreduce(np.ones((4, 4)).T)),
                               ("is no array", lambda: comm.allreduce(object())),
                               ("<c16", lambda: comm.allreduce(np.ones(1, complex))),
                               ("recv is f64", lambda: comm.allreduce(np.ones(1, np.float32), np.ones(1))),
                               ("recv 2", lambda: comm.allreduce(np.ones(1), np.ones(2))),
                               ("parts of [9]", lambda: comm.all_gather(np.ones(1), np.ones(1), counts=[9])),
                               ("'f33' is none", lambda: comm.alloc(3, "f33"))):
                self.assertIn(text, str(caught(ValueError, call)))
            comm.close()
            self.assertIn("closed", str(caught(gsel.ArgError, comm.barrier)))
        ranks(1, run)
        caught(gsel.ArgError, gsel.Communicator, rank=0)
        caught(gsel.ArgError, gsel.Communicator, 0, 1, b"short")

    def test_operation_of_the_program(self):
        def run(comm):
            def longer(best, other):
                b, o = (np.asarray(t).reshape(-1, 2) for t in (best, other))
                b[:] = np.where(o[:, :1] > b[:, :1], o, b)
            with gsel.Op("longer", longer, record=2) as op:
                pair = np.array([[comm.rank % 2, comm.rank], [7, comm.rank]], np.int64)
                np.testing.assert_array_equal([[1, 1], [7, 0]], comm.allreduce(pair, op=op))
            with gsel.Op("fails", lambda best, other: 1 / 0) as op:
                return caught(gsel.CallbackError, comm.allreduce, np.ones(2), op=op)
        causes = [type(error.__cause__) for error in ranks(3, run)]
        self.assertIn(ZeroDivisionError, causes)


class Failing(unittest.TestCase):
    def test_mismatch_names_rank_and_can_be_resynced(self):
        def run(comm):
            error = caught(gsel.MismatchError, comm.allreduce, np.ones(1 + comm.rank))
            self.assertEqual((1, "allreduce"), (error.rank, error.operation))
            comm.barrier()
            comm.resync()
            return comm.allreduce(1)
        self.assertEqual([2, 2], ranks(2, run))

    def test_late_rank_is_a_timeout(self):
        late = threading.Event()

        def run(comm):
            if comm.rank == 1:
                late.wait(60)
                return None
            try:
                return caught(TimeoutError, comm.barrier, timeout=0.3)
            finally:
                late.set()
        error = ranks(2, run)[0]
        self.assertIsInstance(error, gsel.TimeoutError)
        self.assertEqual(1, error.rank)

    def test_abort_from_another_thread(self):
        def run(comm):
            if comm.rank == 0:
                threading.Timer(0.2, comm.abort, ["enough"]).start()
            return str(caught(gsel.AbortedError, comm.recv, bytearray(1), 1 - comm.rank))
        for text in ranks(2, run):
            self.assertIn("enough", text)

    def test_goes_on_without_a_rank_that_left(self):
        def run(comm):
            if comm.rank == 1:
                return None
            self.assertEqual(1, caught(gsel.PeerError, comm.barrier).rank)
            with comm.shrink() as rest:
                return rest.size, rest.allreduce(1 + comm.rank)
        self.assertEqual([(2, 4), None, (2, 4)], ranks(3, run))

    def test_communicators_from_one(self):
        def run(comm):
            half, none = comm.split(comm.rank % 2, -comm.rank), comm.split(-1)
            with half, comm.dup() as dup:
                return none, half.rank, half.allreduce(comm.rank), dup.size, half.name.startswith(comm.name)
        self.assertEqual([(None, 1, 2, 4, True), (None, 1, 4, 4, True), (None, 0, 2, 4, True), (None, 0, 4, 4, True)],
                         ranks(4, run))

    def test_communicators_become_larger(self):
        ids = [gsel.unique_id() for _ in range(4)]

        def run(whole):
            rank, high = whole.rank, whole.rank >= 2
            with gsel.Communicator(rank % 2, 2, ids[high]) as pair, pair.merge(high, 4, ids[2]) as both:
                merged = both.rank, both.allreduce(1 + rank)
                if high:
                    with gsel.Communicator(rank, 4, ids[3]) as grown:
                        return merged, grown.allreduce(1)
                with pair.grow(4, ids[3]) as grown:
                    return merged, grown.allreduce(1)
        self.assertEqual([((rank, 10), 4) for rank in range(4)], ranks(4, run))

    def test_ranks_meet_at_a_place(self):
        with tempfile.TemporaryDirectory() as folder:
            def run(whole):
                with gsel.Communicator(whole.rank, 2, rendezvous=f"file://{folder}/place") as comm:
                    return comm.allreduce(1 + comm.rank)
            self.assertEqual([3, 3], ranks(2, run))

    def test_forked_child_is_told(self):
        comm = gsel.Communicator(0, 1)
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except gsel.ForkedError:
                os._exit(3)
            os._exit(1)
        self.assertEqual(3, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        comm.barrier()


class Loading(unittest.TestCase):
    def test_other_versions_and_no_library_are_refused(self):
        with open(gsel.__file__) as file:
            text = file.read()
        for version, folder, expected in (("1.0.0", None, "needs libgsel 1.0 or a later minor version"),
                                          ("0.99.0", None, "needs libgsel 0.99"), ("0.0.1", None, ""),
                                          ("0.1.0", "/nonexistent", "Tried: /nonexistent/libgsel.so.0: no such file")):
            code = text.replace('__version__ = "0.1.0"', f'__version__ = "{version}"')
            env = dict(os.environ, **({"GSEL_LIB_DIR": folder} if folder else {}))
            said = subprocess.run([sys.executable, "-c", f"__file__ = {gsel.__file__!r}\n" + code], env=env,
                                  capture_output=True, text=True).stderr
            self.assertIn("ImportError" if expected else "", said)
            self.assertIn(expected, said)
            self.assertEqual(bool(expected), bool(said), said)


class Memory(unittest.TestCase):
    def test_numpy_sees_the_memory_of_the_library(self):
        def run(comm):
            tensor = comm.alloc((2, 3), "f64")
            one, other = np.asarray(tensor), np.from_dlpack(tensor)
            one += comm.rank + 1
            np.testing.assert_array_equal(one, np.full((2, 3), comm.rank + 1.0))
            comm.allreduce(tensor)
            np.testing.assert_array_equal(other, np.full((2, 3), 3.0))
            return one
        kept = ranks(2, run)  # communicators are closed, tensors gone
        gc.collect()
        for one in kept:
            np.testing.assert_array_equal(one, np.full((2, 3), 3.0))
        self.assertEqual({}, gsel._exported)

    def test_capsules_are_released_taken_or_not(self):
        def run(comm):
            tensor = comm.alloc(4)
            plain, versioned = tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))
            self.assertIn('"dltensor"', repr(plain))
            self.assertIn('"dltensor_versioned"', repr(versioned))
            self.assertEqual((1, 0), tensor.__dlpack_device__())

            class Newer:  # a library that gives versioned tensors alone
                __dlpack_device__ = tensor.__dlpack_device__

                def __dlpack__(self):
                    return tensor.__dlpack__(max_version=(1, 0))

            class ReadOnly(Newer):
                def __dlpack__(self):
                    capsule = super().__dlpack__()
                    gsel._DLVersioned.from_address(gsel._capsule_pointer(id(capsule), gsel._VERSIONED)).flags |= 1
                    return capsule
            self.assertIn("read only", str(caught(gsel.ArgError, comm.allreduce, ReadOnly())))
            np.asarray(tensor)[:] = 2
            comm.allreduce(Newer(), op=gsel.PROD)
            self.assertEqual([2 ** comm.size] * 4, list(np.asarray(tensor)))
        ranks(2, run)
        gc.collect()
        self.assertEqual({}, gsel._exported)


class Training(unittest.TestCase):
    CONFIG = "[train]\nbatch = 8\nmicrobatch = 4\nseed = 1\n[strategy.data]\nplugin = \"zero\"\nstage = 3\n"

    def fill(self, work):
        np.asarray(work.dst)[:] = [[i % 27, 3, 5, i % 7] for i in work.sample_ids]

    def step(self, iterator):
        for work in iterator:
            if work.kind == gsel.INPUT:
                self.assertEqual("text", work.layer)
                self.fill(work)
            else:
                train_mlp.compute(work)

    def test_reads_what_it_trains(self):
        first = np.linspace(-1, 1, 27 * 32, dtype=np.float32).reshape(27, 32)

        def run(comm):
            model = gsel.Model()
            given = model.param("given", first.shape, init=first)
            offsets = model.param("offsets", 27, init="ones")
            x = model.value("text", 4, dtype="i32", flags=gsel.VALUE_INPUT)
            h = model.value("h", 32)
            rows, bias = model.param("rows", (81, 32), init="normal", scale=0.1), model.param("bias", 32)
            sums = [model.value(name, dtype="f64", flags=gsel.VALUE_SCALAR) for name in ("loss", "weight")]
            model.layer("hidden", [x], [h], [rows, bias])
            model.layer("loss", [h, x], sums, [given, offsets], flags=gsel.LAYER_LOSS)
            with gsel.Trainer(comm, model, gsel.Config(text=self.CONFIG)) as trainer:
                before = trainer.read_param(given, np.empty_like(first))
                np.testing.assert_array_equal(first, before)
                trainer.set_learning_rate(0.5)
                self.step(trainer.step())
                report = trainer.report()
                self.assertEqual((0, 8.0, 0.5), (report.step, report.weight, report.learning_rate))
                gradient = trainer.read_gradient(given, np.empty_like(first))
                self.assertGreater(np.abs(gradient).max(), 0)
                after = trainer.read_param(given, np.empty_like(first))
                self.assertTrue(np.any(after != before))
                self.step(trainer.evaluate(0))
                self.assertEqual(8.0, trainer.report().weight)
                return after
        np.testing.assert_array_equal(*ranks(2, run))

    def test_weights_go_through_a_file(self):
        rules = "".join(f'[[weights.map]]\nsource = "{name}"\ntarget = "{name}"\n' for name in ("rows", "bias", "offsets"))
        rules += '[[weights.map]]\nsource = "turned"\ntarget = "weights"\ntranspose = true\n'

        def run(comm):
            path = os.path.join(folder, "weights.safetensors")
            config, rules_of_file = gsel.Config(text=self.CONFIG), gsel.Config(text=rules)
            with train_mlp.network() as model, gsel.Trainer(comm, model, config) as trainer:
                written = trainer.export_weights(path, rules_of_file)
                self.assertEqual((4, comm.rank == 0), (written.n_tensors, written.bytes > 0))
                first = trainer.read_param(0, np.empty((81, 32), np.float32))
                self.step(trainer.step())
                read = trainer.load_weights(path, rules_of_file)
                self.assertEqual((4, 0, 0), (read.n_tensors, read.n_kept, read.n_ignored))
                np.testing.assert_array_equal(first, trainer.read_param(0, np.empty_like(first)))
                with self.assertRaises(gsel.MismatchError) as refused:
                    trainer.load_weights(path)
                self.assertIn('1 tensor without a parameter: "turned"', str(refused.exception))
        with tempfile.TemporaryDirectory() as folder:
            ranks(2, run)

    ELASTIC = "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.25\nweight_decay = 0\nbatch = 6\n"

    @staticmethod
    def distance():
        """loss = (w - x)^2; six samples x = 1, 3, ... 11 give w = 3 after one step, then 4.5 and 5.25."""
        model = gsel.Model()
        w, x = model.param("w", 1), model.value("x", 1, flags=gsel.VALUE_INPUT)
        sums = [model.value(name, dtype="f64", flags=gsel.VALUE_SCALAR) for name in ("loss", "weight")]
        model.layer("distance", [x], sums, [w], flags=gsel.LAYER_LOSS)
        return model

    def distance_step(self, trainer):
        for work in trainer.step():
            if work.kind == gsel.INPUT:
                np.asarray(work.dst)[:, 0] = 2 * (np.array(work.sample_ids) % 6) + 1
                continue
            w, x = np.asarray(work.params[0]), np.asarray(work.inputs[0])
            if work.kind == gsel.FORWARD:
                for out, value in zip(work.outputs, (((w - x) ** 2).sum(), len(x))):
                    np.asarray(out)[...] = value
            else:
                d_w = np.asarray(work.d_params[0])
                d_w[0] = (d_w[0] if work.accumulate else 0) + 2 * (w - x).sum()
        return trainer.read_param(0, np.empty(1, np.float32))[0]

    def test_save_in_the_background_is_loaded(self):
        def run(comm, folder):
            with self.distance() as model, gsel.Trainer(comm, model, gsel.Config(text=self.ELASTIC)) as trainer:
                position, own = np.array([0, 7]), bytearray([comm.rank])
                trainer.add_state("data/position", position)
                trainer.add_state("own", own, gsel.STATE_OF_RANK)
                caught(gsel.ArgError, trainer.add_state, "own", own)
                self.assertIn("read only", str(caught(gsel.ArgError, trainer.add_state, "bytes", b"1")))
                self.assertEqual(3, self.distance_step(trainer))
                with trainer.state() as state:
                    self.assertEqual([("data/position", gsel.STATE_SHARED, position.tobytes()),
                                      ("own", gsel.STATE_OF_RANK, bytes(own))],
                                     [(one.name, one.scope, one.data) for one in state.own()])
                self.assertEqual((gsel.SAVE_NONE, None), (trainer.save_state(), trainer.save_wait()))
                begun = trainer.save_begin(folder)
                position[1], own[0] = 8, 9  # the copy is taken
                self.assertEqual((1, 0), (begun.step, begun.bytes))
                self.distance_step(trainer)
                self.assertIn(trainer.report().save, (gsel.SAVE_UNDER_WAY, gsel.SAVE_DONE))
                saved = trainer.save_wait()
                self.assertEqual((1, gsel.SAVE_NONE), (saved.step, trainer.save_state()))
                self.assertLessEqual(saved.blocked_seconds, saved.seconds)
                caught(gsel.ArgError, trainer.save_begin, "")
            with self.distance() as model, gsel.Trainer(comm, model, gsel.Config(text=self.ELASTIC)) as trainer:
                position, own = np.zeros(2, position.dtype), bytearray(1)
                trainer.add_state("data/position", position)
                trainer.add_state("own", own, gsel.STATE_OF_RANK)
                self.assertEqual(1, trainer.load(folder).step)
                self.assertEqual(([0, 7], [comm.rank]), (list(position), list(own)))
                return self.distance_step(trainer)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual([4.5, 4.5], ranks(2, lambda comm: run(comm, folder)))

    def test_memory_of_a_state_lives_as_long_as_the_trainer(self):
        def run(comm):
            array = np.zeros(4)
            kept = weakref.ref(array)
            trainer = gsel.Trainer(comm, self.distance(), gsel.Config(text=self.ELASTIC))
            trainer.add_state("array", array)
            state = trainer.state()
            del array
            trainer.close()
            gc.collect()
            self.assertIsNotNone(kept())  # the state still needs the trainer
            del state, trainer
            gc.collect()
            self.assertIsNone(kept())
        ranks(1, run)

    def test_state_is_read_and_written_by_name(self):
        def run(comm):
            with self.distance() as model, gsel.Trainer(comm, model, gsel.Config(text=self.ELASTIC)) as trainer:
                self.distance_step(trainer)
                state, out = trainer.state(), np.empty(1, np.float32)
                i, = [i for i, entry in enumerate(state.entries()) if entry.name == "param:w"]
                entry = state.entry(i)
                self.assertEqual(("param", 0, (1,), "f32", 1),
                                 (entry.role, entry.param, entry.shape, entry.dtype, entry.pieces))
                self.assertEqual([(0, 0, 1)], state.runs(i, 0))
                self.assertEqual(3, state.read_piece(i, 0, out)[0])
                wanted = state.read(i, out if comm.rank == 0 else None, count=1)
                self.assertEqual(3 if comm.rank == 0 else None, wanted[0] if wanted is not None else None)
                for wrong in (lambda: state.entry(len(state)), lambda: state.runs(i, 1),
                              lambda: state.read_piece(i, 0, out, first=1), lambda: state.write(i, np.zeros(1)),
                              lambda: state.read(i, None)):
                    caught(gsel.ArgError, wrong)
                self.assertEqual(1, state.write(i, np.array([2], np.float32)))
                numbers = state.numbers()
                self.assertEqual((1, 1, -1), (numbers.step, numbers.updates, numbers.learning_rate))
                numbers.step, numbers.learning_rate = 7, 0
                state.set_numbers(numbers)
                self.assertEqual(2, self.distance_step(trainer))
                self.assertEqual(7, trainer.report().step)
                self.assertIn("open its state again", str(caught(gsel.StateError, state.entry, 0)))
                state.close()
        ranks(2, run)

    def test_goes_on_with_fewer_ranks_and_with_more(self):
        def run(whole):
            first, model = whole.dup(), self.distance()
            trainer = gsel.Trainer(first, model, gsel.Config(text=self.ELASTIC))
            self.assertEqual(3, self.distance_step(trainer))
            pair = whole.split(0 if whole.rank < 2 else -1)
            if pair:
                caught(gsel.Error, trainer.rebind, pair, gsel.Config(text="[mesh]\ntensor = 5\n" + self.ELASTIC))
                report = trainer.rebind(pair)
                self.assertEqual((gsel.REBIND_FROM_RANKS, 1, 0), (report.source, report.step, report.lost_steps))
                first.close()
                self.assertEqual(4.5, self.distance_step(trainer))
                report = trainer.rebind(whole)
                pair.close()
            else:
                trainer.close()
                first.close()
                trainer, report = gsel.Trainer.join(whole, model, gsel.Config(text=self.ELASTIC))
                self.assertGreater(report.bytes_moved, 0)
            self.assertEqual(2, report.step)
            self.assertEqual(5.25, self.distance_step(trainer))
            trainer.close()
        ranks(3, run)

    def test_loop_that_is_left_fails_the_step_everywhere(self):
        for leave in ("raise", "break"):
            def run(comm):
                with train_mlp.network() as model, gsel.Trainer(comm, model, gsel.Config(text=self.CONFIG)) as trainer:
                    try:
                        for work in trainer.step():
                            if comm.rank == 1 and work.kind == gsel.FORWARD:
                                if leave == "break":
                                    break
                                raise KeyError("mine")
                            if work.kind == gsel.INPUT:
                                self.fill(work)
                            else:
                                train_mlp.compute(work)
                    except KeyError:
                        return "mine"
                    except gsel.AbortedError as error:
                        return str(error)
            other, mine = ranks(2, run)
            self.assertEqual("mine" if leave == "raise" else None, mine)
            self.assertIn("the program left its loop at hidden", other)


if __name__ == "__main__":
    unittest.main()
