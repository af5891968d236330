"""Classes, instances and proxies whose attribute lookup misbehaves."""

import gc
import sys
import threading

import arrow_ctypes as ac
import pytest
from hostile import FINAL, REFUSALS, freeze_kept_structs, name_of  # noqa: F401
from loops import looped

import arrowdev as ad


class Proxy:
    """Forwards everything to another object."""

    def __init__(self, inner):
        self.__dict__["inner"] = inner

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)


def test_proxy():
    for make in (ac.Host, ac.OnDevice):
        tree = ac.numbers()
        proxy = Proxy(Proxy(make(tree)))
        assert ad.protocols(proxy) == ad.protocols(make(tree))
        array = ad.array(proxy)
        assert len(array) == 3
        del array
        assert tree.released == (1, 1)
    assert ad.protocols(Proxy(object())) == ()


@pytest.mark.parametrize("error", [*REFUSALS, AttributeError()], ids=name_of)
def test_failing_getattr_means_no_protocols(error):
    class Closed:
        def __getattr__(self, name):
            raise error

    assert ad.protocols(Closed()) == ()
    with pytest.raises(TypeError, match="speaks none"):
        ad.array(Closed())


@looped("error", FINAL)
@pytest.mark.parametrize("hook", ["__getattr__", "__getattribute__"])
@pytest.mark.parametrize("ask", [ad.array, ad.tensor, ad.protocols, ad.from_dlpack])
def test_getattr_may_interrupt(error, hook, ask):
    def fail(self, name):
        if name.startswith("__class"):
            return object.__getattribute__(self, name)
        raise error

    with pytest.raises(type(error)) as raised:
        ask(type("Busy", (), {hook: fail})())
    assert raised.value is error


def test_getattr_accepts_every_name():
    class Anything:
        def __getattr__(self, name):
            return lambda *args, **kwargs: self

    with pytest.raises(ad.ExchangeError, match="expected"):
        ad.array(Anything())


def test_class_changed_after_it_was_cached():
    class Base:
        __slots__ = ()

    class Changing(Base):
        __slots__ = ()

    def check(*names):
        for _ in range(3):
            assert ad.protocols(Changing()) == names

    check()
    Changing.__arrow_c_array__ = lambda self, **_: ac.numbers().host_pair()
    check("__arrow_c_array__")
    assert len(ad.array(Changing())) == 3
    Base.__arrow_c_stream__ = None
    check("__arrow_c_array__", "__arrow_c_stream__")
    del Changing.__arrow_c_array__
    check("__arrow_c_stream__")
    del Base.__arrow_c_stream__
    check()
    with pytest.raises(TypeError):
        ad.array(Changing())

    class Other(Base):
        __slots__ = ()

        def __arrow_c_array__(self, requested_schema=None):
            return ac.numbers(7).host_pair()

    Changing.__bases__ = (Other,)
    check("__arrow_c_array__")
    assert len(ad.array(Changing())) == 7
    Changing.__bases__ = (Base,)
    check()


def test_instance_attributes():
    class Plain:
        pass

    with_, without = Plain(), Plain()
    for _ in range(3):
        assert ad.protocols(with_) == ad.protocols(without) == ()
        with_.__arrow_c_array__ = lambda requested_schema=None: ac.numbers(4).host_pair()
        assert ad.protocols(with_) == ("__arrow_c_array__",)
        assert ad.protocols(without) == ()
        assert len(ad.array(with_)) == 4
        del with_.__arrow_c_array__


def test_metaclass_attributes_are_ignored():
    class Meta(type):
        def __arrow_c_array__(cls, requested_schema=None):
            return ac.numbers(5).host_pair()

    class Made(metaclass=Meta):
        __slots__ = ()

    assert ad.protocols(Made()) == ()
    assert ad.protocols(Made) == ("__arrow_c_array__",)
    assert len(ad.array(Made)) == 5
    with pytest.raises(TypeError):
        ad.array(Made())


def test_class_objects_are_refused():
    for cls in (ac.Host, ac.OnDevice, ad.Array, ad.Tensor):
        with pytest.raises((TypeError, ad.ExchangeError)):
            ad.array(cls)


def test_false_class_property():
    class Liar:
        @property
        def __class__(self):
            return ad.Array

    assert isinstance(Liar(), ad.Array)
    for ask in (ad.array, ad.tensor, ad.schema, ad.validate, ad.record_batch):
        with pytest.raises(TypeError):
            ask(Liar())


def test_more_classes_than_slots():
    classes = []
    for n in range(40):
        members = {"__slots__": ()}
        if n % 3:
            members["__arrow_c_array__"] = lambda self, n=n, **_: ac.numbers(n).host_pair()
        classes.append(type(f"C{n}", (), members))
    for _ in range(3):
        for n, cls in enumerate(classes):
            assert bool(ad.protocols(cls())) == bool(n % 3)
            if n % 3:
                assert len(ad.array(cls())) == n


def test_reentrant_imports_evict_the_slot_in_use():
    def evict():
        for n in range(12):
            cls = type(f"E{n}", (), {"__slots__": (), "__arrow_c_array__": None})
            with pytest.raises(ad.ExchangeError):
                ad.array(cls())
        gc.collect()

    class Nested:
        __slots__ = ("depth",)

        def __init__(self, depth):
            self.depth = depth

        def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
            evict()
            raise ValueError("try the next one")

        def __arrow_c_array__(self, requested_schema=None):
            if self.depth:
                return ad.array(Nested(self.depth - 1)).__arrow_c_array__()
            evict()
            return ac.numbers(6).host_pair()

    assert len(ad.array(Nested(5))) == 6


def test_producer_changes_its_class_during_call():
    class After:
        __slots__ = ()

        def __arrow_c_stream__(self, requested_schema=None):
            raise ValueError("the new class was asked")

    def make():
        class Before:
            __slots__ = ()

            def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
                self.__class__ = After
                gc.collect()
                raise ValueError("gone")

            def __arrow_c_array__(self, requested_schema=None):
                raise AssertionError

        return Before()

    with pytest.raises(ad.ExchangeError, match="gone"):
        ad.array(make())

    class Shrinking:
        __slots__ = ()

        def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
            del Shrinking.__arrow_c_device_array__, Shrinking.__arrow_c_array__
            raise ValueError("gone too")

        def __arrow_c_array__(self, requested_schema=None):
            raise AssertionError

    with pytest.raises(ad.ExchangeError, match="gone too"):
        ad.array(Shrinking())
    assert ad.protocols(Shrinking()) == ()


def test_endless_recursion():
    class Endless:
        def __arrow_c_array__(self, requested_schema=None):
            return ad.array(self).__arrow_c_array__()

    old = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        with pytest.raises((ad.ExchangeError, RecursionError)):
            ad.array(Endless())
    finally:
        sys.setrecursionlimit(old)


class EvilKey:
    """Hashes like a dunder name, equals nothing, and runs code when compared."""

    armed = False

    def __init__(self, name, run):
        self.hash = hash(name)
        self.run = run

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        if EvilKey.armed:
            self.run()
        return False


@pytest.fixture
def armed():
    """False while the test creates its classes."""
    yield lambda: setattr(EvilKey, "armed", True)
    EvilKey.armed = False


NAMES = ["__dlpack__", "__arrow_c_array__", "__dlpack_c_exchange_api__", "__module__"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("class_name", ["X", "MaskedArray"])
def test_class_keys_change_bases(name, class_name, armed):
    class First:
        pass

    class Second:
        pass

    class Third(First, Second):
        pass

    def run():
        cls.__bases__ = (Third,) if cls.__bases__ != (Third,) else (First, Second)
        gc.collect()

    cls = type(class_name, (First, Second), {EvilKey(name, run): 1})
    armed()
    for _ in range(3):
        with pytest.raises(TypeError, match="speaks none"):
            ad.array(cls())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()], ids=name_of)
def test_class_keys_raise(name, error, armed):
    def run():
        raise error

    cls = type("X", (), {EvilKey(name, run): 1, "__slots__": ()})
    armed()
    for _ in range(3):
        with pytest.raises((TypeError, type(error))):
            ad.array(cls())


def test_instance_dict_replaced_during_lookup(armed):
    class Holder:
        pass

    def run():
        holder.__dict__ = {}
        gc.collect()
        [{n: n} for n in range(100)]

    armed()
    for name in NAMES:
        holder = Holder()
        holder.__dict__ = {EvilKey(name, run): 1}
        with pytest.raises(TypeError, match="speaks none"):
            ad.array(holder)


def test_instance_keys_interrupt(armed):
    def run():
        raise KeyboardInterrupt

    class Holder:
        pass

    holder = Holder()
    holder.__dict__ = {EvilKey("__dlpack__", run): 1}
    armed()
    with pytest.raises(KeyboardInterrupt):
        ad.array(holder)


def test_metaclass_runs_code_on_lookup():
    class Meta(type):
        def __getattribute__(cls, name):
            if name.startswith("__dlpack"):
                made.__class__ = Other
                gc.collect()
            return super().__getattribute__(name)

    class Other:
        __slots__ = ()

    def make():
        return Meta("Made", (), {"__slots__": ()})()

    made = make()
    with pytest.raises(TypeError):
        ad.array(made)


def test_threads_change_classes_during_imports():
    class Shared:
        pass

    def export(self, requested_schema=None):
        return ac.numbers().host_pair()

    stop = threading.Event()
    wrong = []

    def change():
        while not stop.is_set():
            Shared.__arrow_c_array__ = export
            Shared.__arrow_c_stream__ = 1
            del Shared.__arrow_c_array__
            del Shared.__arrow_c_stream__

    def use():
        for n in range(400):
            try:
                ad.array(Shared())
                ad.protocols(type(f"T{n}", (), {})())
            except (TypeError, ad.ExchangeError):
                pass
            except BaseException as error:
                wrong.append(error)

    changer = threading.Thread(target=change)
    users = [threading.Thread(target=use) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        changer.start()
        for user in users:
            user.start()
        for user in users:
            user.join()
    finally:
        stop.set()
        changer.join()
        sys.setswitchinterval(interval)
    assert wrong == []
