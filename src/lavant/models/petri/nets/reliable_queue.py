"""The reliable queue of the paper, Figures 4 to 10: senders, a broker with visibility timeout, and receivers.

Li, Cui and Ma, "Modeling Message Queueing Services with Reliability Guarantee in Cloud Computing Environment Using
Colored Petri Nets", Section 6. Names of pages, colour sets, functions, and of the places and transitions that the text
mentions are the paper's. Each function below draws one figure. What differs:

* Time is in seconds, as real numbers, not in whole milliseconds.
* The paper's algorithms search lists by recursion; here they are comprehensions.
* The replicas of a message lie on `replicas` of the server nodes, chosen by its id. `Get_Msg` samples a node at random
  that holds a visible message, so messages leave out of order as soon as not every node holds all of them.
* In order, `Queue_Index` holds the ids to send again and the next id; a message that was lost is sent again first.
* The timer may start when a message is sent, or when its processing starts; see `docs/queue-models.md`.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.language.colours import Bool, Enumeration, Int, ListOf, Product, Real, RecordOf, Unit
from lavant.models.petri.monitors import DataCollection, Monitor, Occurrences, Size
from lavant.models.petri.net import IN, IN_OUT, OUT, Net, Page
from lavant.models.petri.state_space import Invariant, PathProperty

IN_ORDER, OUT_OF_ORDER = "in-order", "out-of-order"
BROKEN = ("loses", "shares", "disorders")


class ReliableQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the net, with the symbols of the paper; by default those of its Section 7.1."""

    order: str = OUT_OF_ORDER
    arrivals_per_s: float = 30.3
    """λ."""
    sends_per_s: float = 10.0
    """μ1, of each of the sender's threads."""
    forwards_per_s: float = 10.0
    """μ2, of each of the broker's threads."""
    sender_threads: int = 6
    """n1."""
    broker_threads: int = 6
    """n2."""
    reliability: float = 0.99
    """q: the probability that a message reaches its receiver."""
    link_s: float = 0.0
    """D_link: one way over the network."""
    timeout_s: float = 0.01
    """The visibility timeout."""
    timer_starts: str = "sending"
    """`sending`, when the broker has processed the message, or `processing`, when it begins to."""
    nodes: int = 3
    replicas: int = 3
    messages: int | None = None
    """Messages to produce; without end by default."""
    timeouts: int | None = None
    """Timeouts that make a message visible again, at most; a state space without this bound is infinite."""
    arriving: str = "exponential(arrivals)"
    """Time between two messages, as an inscription."""
    sending: str = "exponential(mu1)"
    """Service time of the sender, as an inscription."""
    forwarding: str = "exponential(mu2)"
    """Service time of the broker, as an inscription."""
    broken: str | None = None
    """A mistake to build in: `loses` messages, `shares` them while their timer runs, or `disorders` them."""

    def __post_init__(self) -> None:
        self._check(self.order in (IN_ORDER, OUT_OF_ORDER), "order", f"one of {IN_ORDER}, {OUT_OF_ORDER}")
        self._check(self.timer_starts in ("sending", "processing"), "timer_starts", "one of sending, processing")
        self._check(self.broken in (None, *BROKEN), "broken", f"one of {', '.join(BROKEN)}")
        self._check(self.broken != "disorders" or self.order == IN_ORDER, "order", f"{IN_ORDER} to be broken so")
        for name in ("arrivals_per_s", "sends_per_s", "forwards_per_s", "timeout_s"):
            self._check(0 < getattr(self, name) < math.inf, name, "positive, and finite")
        self._check(0 <= self.link_s < math.inf, "link_s", "0 or more, and finite")
        self._check(0 < self.reliability <= 1, "reliability", "above 0 and at most 1")
        for name in ("sender_threads", "broker_threads", "nodes"):
            self._check(1 <= getattr(self, name) <= 1000, name, "between 1 and 1000")
        self._check(1 <= self.replicas <= self.nodes, "replicas", f"between 1 and {self.nodes}, the number of nodes")
        self._check(self.messages is None or self.messages >= 1, "messages", "1 or more")
        self._check(self.timeouts is None or self.timeouts >= 0, "timeouts", "0 or more")

    def _check(self, is_right: bool, name: str, wanted: str) -> None:
        if not is_right:
            raise InvalidValue(f"{name} must be {wanted}, got {getattr(self, name)}")


def reliable_queue(given: ReliableQueue) -> Net:
    net = Net(f"reliable queue, {given.order}")
    _declarations(net, given)
    _layer_1(net)
    _layer_2(net, given)
    _send_proc(net, given)
    _broker(net, given)
    _recv_proc(net)
    _visibility_timeout(net, given)
    return net


def monitors(given: ReliableQueue) -> tuple[Monitor, ...]:
    """The paper's monitors: delivery time, waiting messages, utilisation (busy threads), and counts.

    In order, no place holds what waits for a thread or an older message: it is what is in the queue and not invisible.
    """
    is_ordered = given.order == IN_ORDER
    get = "Get_Oldest_Msg" if is_ordered else "Get_Msg"
    visible = Size("Waiting_In_Queue", "Cloud_Queue'Msg_Vis", "len(token)")
    return (
        DataCollection("Msg_Delivery_Latency", "Recv_Proc'Deliver", "recvtime - sent.AT"),
        DataCollection("Msg_Queue_Latency", f"Broker'{get}", "msg.OT - msg.IT"),
        DataCollection("Msg_Arrival_Latency", "Send_Proc'Put_Msg", "time() - sent.AT"),
        Size("Waiting_In_Sender", "Send_Proc'Addressed", "len(token)"),
        Size("Invisible", "Broker'Invisible", "len(token)") if is_ordered else visible,
        Size("Queue_Length", "Cloud_Queue'Queue", "len(token)"),
        Size("Busy_Sender_Threads", "Send_Proc'Sending"),
        Size("Busy_Broker_Threads", "Broker'Processing"),
        Occurrences("Produced", "Send_Proc'Produce"),
        Occurrences("Delivered", "Recv_Proc'Deliver"),
        Occurrences("Timers_Triggered", "Visibility_Timeout'Trigger"),
    )


def _declarations(net: Net, given: ReliableQueue) -> None:
    """Tables 1 and 2, Algorithms 1 to 4."""
    net.colour(Unit("UNIT", timed=True))
    boolean, integer = net.colour(Bool("BOOL")), net.colour(Int("INT"))
    real = net.colour(Real("REAL"))
    net.colour(Int("MsgTimeout", timed=True))
    net.colour(Enumeration("REQ", ("req",), timed=True))
    net.colour(Enumeration("Sender", ("sender",)))
    thread = net.colour(Enumeration("Thread", ("thread",)))
    content = net.colour(Enumeration("MsgContent", ("A", "B")))
    visibility = net.colour(Enumeration("Visibility", ("visible", "invisible")))
    fields = (("id", integer), ("msgContent", content), ("AT", real))
    msg = net.colour(RecordOf("Msg", (*fields, ("IT", real), ("OT", real))))
    timed = net.colour(RecordOf("MsgTimed", fields, timed=True))
    msgs = net.colour(ListOf("Msgs", msg))
    waiting = net.colour(ListOf("MsgsTimed", timed))
    net.colour(Product("ThreadxMsg", (thread, msg), timed=True))
    net.colour(Product("ThreadxMsgTimed", (thread, timed), timed=True))
    pair = net.colour(Product("IdxVis", (integer, visibility)))
    pairs = net.colour(ListOf("LIdxVis", pair))
    ids = net.colour(ListOf("Ids", integer))
    index = net.colour(RecordOf("Index", (("again", ids), ("next", integer))))
    net.variables(n=integer, left=integer, id=integer, node=integer, ok=boolean, content=content, recvtime=real)
    net.variables(
        msg=msg, found=msg, msgs=msgs, sent=timed, waiting=waiting, lidxvis=pairs, lidxvis2=pairs, index=index
    )
    net.values(arrivals=given.arrivals_per_s, mu1=given.sends_per_s, mu2=given.forwards_per_s, q=given.reliability)
    net.values(D_link=given.link_s, timeout=given.timeout_s, nodes=given.nodes, replicas=given.replicas)
    if given.messages is not None:
        net.values(messages=given.messages)
    net.function("getIndexMsg", "first(m for m in msgs if m.id == index)", msgs=msgs, index=integer)
    net.function("ifMsgArrived", "any(m.id == index for m in msgs)", msgs=msgs, index=integer)
    net.function("deleteMsg", "[m for m in msgs if m.id != index]", msgs=msgs, index=integer)
    net.function("deleteId", "[each for each in ids if each[0] != index]", ids=pairs, index=integer)
    net.function("ifInvisible", "any(each[0] == index for each in ids)", ids=pairs, index=integer)
    net.function("holds", "(index + node) % nodes < replicas", node=integer, index=integer)
    net.function("ifSampled", "any(holds(node, each[0]) for each in ids)", ids=pairs, node=integer)
    net.function("sampledId", "first(each[0] for each in ids if holds(node, each[0]))", ids=pairs, node=integer)
    net.function("oldest", "first(index.again) if len(index.again) > 0 else index.next", index=index)
    net.function(
        "advance",
        "replace(index, again=rest(index.again)) if len(index.again) > 0 else replace(index, next=index.next + 1)",
        index=index,
    )
    net.function(
        "deleteAgain", "replace(index, again=[each for each in index.again if each != n])", index=index, n=integer
    )


def _layer_1(net: Net) -> None:
    """Figure 4."""
    colours, page = net.scope.colours, net.page("Layer_1")
    page.place("Sender", colours["Sender"], ["sender"], at=(0, 0))
    page.place("Receiver", colours["REQ"], ["req"], at=(720, 0))
    page.place("Received", colours["MsgTimed"], at=(720, 162))
    ports = {name: name for name in ("Sender", "Receiver", "Received")}
    page.substitute("Cloud_Queue", "Cloud_Queue", ports, at=(360, 0))


def _layer_2(net: Net, given: ReliableQueue) -> None:
    """Figure 5."""
    colours, page = net.scope.colours, net.page("Cloud_Queue")
    page.place("Sender", colours["Sender"], port=IN_OUT, at=(0, 0))
    page.place("Queue", colours["Msgs"], [[]], at=(480, 0))
    visible = _visible(page, given, at=(480, 175), is_port=False)
    page.place("To_Receiver", colours["MsgTimed"], at=(960, 0))
    page.place("Delete_Req", colours["MsgTimed"], at=(960, 175))
    page.place("Receiver", colours["REQ"], port=IN_OUT, at=(960, 330))
    page.place("Received", colours["MsgTimed"], port=OUT, at=(1440, 87))
    sends = ("Sender", "Queue") if given.order == IN_ORDER else ("Sender", "Queue", visible)
    page.substitute("Send_Proc", "Send_Proc", {name: name for name in sends}, at=(240, 87))
    brokers = ("Queue", visible, "To_Receiver", "Delete_Req", "Receiver")
    page.substitute("Broker", "Broker", {name: name for name in brokers}, at=(720, 87))
    receives = ("To_Receiver", "Delete_Req", "Receiver", "Received")
    page.substitute("Recv_Proc", "Recv_Proc", {name: name for name in receives}, at=(1200, 87))


def _visible(page: Page, given: ReliableQueue, *, at: tuple[float, float], is_port: bool = True) -> str:
    """The place that says which messages may be sent: `Msg_Vis`, or `Queue_Index` for delivery in order."""
    name, colour, first = "Msg_Vis", "LIdxVis", ()
    if given.order == IN_ORDER:
        name, colour, first = "Queue_Index", "Index", ((), 1)  # type: ignore[assignment]
    tokens = () if is_port else (first,)
    page.place(name, page.net.scope.colours[colour], tokens, port=IN_OUT if is_port else None, at=at)
    return name


def _send_proc(net: Net, given: ReliableQueue) -> None:
    """Figure 6: 13 places and 7 transitions."""
    colours, page = net.scope.colours, net.page("Send_Proc")
    page.place("Next", colours["UNIT"], [()], at=(0, 0))
    page.place("Msg_ID", colours["INT"], [1], at=(0, 175))
    page.place("Sender", colours["Sender"], port=IN_OUT, at=(0, 350))
    page.place("Produced", colours["MsgTimed"], at=(480, 175))
    page.place("Addressed", colours["MsgsTimed"], [[]], at=(960, 175))
    page.place("Thread", colours["Thread"], given.sender_threads * ["thread"], at=(1200, 0))
    page.place("Sending", colours["ThreadxMsgTimed"], at=(1440, 175))
    page.place("On_Link", colours["MsgTimed"], at=(1440, 525))
    page.place("Arrived", colours["MsgTimed"], at=(960, 525))
    page.place("Queue", colours["Msgs"], port=IN_OUT, at=(480, 525))
    in_order = given.order == IN_ORDER
    page.place(
        "Msg_Vis", colours["LIdxVis"], [[]] if in_order else (), port=None if in_order else IN_OUT, at=(720, 350)
    )
    page.place("Ack", colours["UNIT"], at=(720, 700))
    page.place("Sent", colours["UNIT"], at=(0, 700))
    page.transition(
        "Produce",
        takes={"Next": "()", "Msg_ID": "n"},
        reads={"Sender": "sender"},
        puts={
            "Next": f"() @+ {given.arriving}",
            "Msg_ID": "n + 1",
            "Produced": "MsgTimed(id=n, msgContent=A, AT=time())",
        },
        guard="" if given.messages is None else "n <= messages",
        at=(240, 175),
    )
    page.transition(
        "Locate_Queue",
        takes={"Produced": "sent", "Addressed": "waiting"},
        puts={"Addressed": "waiting + [sent]"},
        at=(720, 175),
    )
    page.transition(
        "Start_Sending",
        takes={"Addressed": "[sent, *waiting]", "Thread": "thread"},
        puts={"Addressed": "waiting", "Sending": f"(thread, sent) @+ {given.sending}"},
        at=(1200, 175),
    )
    page.transition(
        "End_Sending",
        takes={"Sending": "(thread, sent)"},
        puts={"Thread": "thread", "On_Link": "sent @+ D_link"},
        at=(1440, 350),
    )
    page.transition("Arrive", takes={"On_Link": "sent"}, puts={"Arrived": "sent"}, at=(1200, 525))
    page.transition(
        "Put_Msg",
        takes={"Arrived": "sent", "Queue": "msgs", "Msg_Vis": "lidxvis"},
        puts={
            "Queue": "msgs + [Msg(id=sent.id, msgContent=sent.msgContent, AT=sent.AT, IT=time(), OT=0.0)]",
            "Msg_Vis": "lidxvis" if in_order else "lidxvis + [(sent.id, visible)]",
            "Ack": "() @+ D_link",
        },
        at=(720, 525),
    )
    page.transition("Acknowledge", takes={"Ack": "()"}, puts={"Sent": "()"}, at=(360, 700))


def _broker(net: Net, given: ReliableQueue) -> None:
    """Figure 7, or Figure 10 for delivery in order."""
    colours, page = net.scope.colours, net.page("Broker")
    page.place("Queue", colours["Msgs"], port=IN_OUT, at=(0, 175))
    visible = _visible(page, given, at=(360, 350))
    page.place("Receiver", colours["REQ"], port=IN_OUT, at=(0, 0))
    page.place("Server_Nodes", colours["INT"], list(range(given.nodes)), at=(0, 350))
    page.place("Thread", colours["Thread"], given.broker_threads * ["thread"], at=(720, 0))
    page.place("Processing", colours["ThreadxMsg"], at=(720, 175))
    page.place("To_Receiver", colours["MsgTimed"], port=OUT, at=(1440, 175))
    page.place("Invisible", colours["LIdxVis"], [[]], at=(720, 350))
    page.place("Timer", colours["MsgTimeout"], at=(1080, 350))
    page.place("Delete_Req", colours["MsgTimed"], port=IN, at=(1080, 690))
    if given.order == IN_ORDER:
        _get_oldest_msg(page, given)
    else:
        _get_msg(page, given)
    starts = {"Timer": "msg.id @+ timeout"} if given.timer_starts == "sending" else {}
    page.transition(
        "Send_Msg",
        takes={"Processing": "(thread, msg)"},
        puts={
            "Thread": "thread",
            "To_Receiver": "MsgTimed(id=msg.id, msgContent=msg.msgContent, AT=msg.AT) @+ D_link",
            **starts,
        },
        at=(1080, 175),
    )
    ports = {name: name for name in ("Queue", visible, "Invisible", "Timer", "Delete_Req")}
    page.substitute("Visibility_Timeout", "Visibility_Timeout", ports, at=(720, 690))


def _get_msg(page: Page, given: ReliableQueue) -> None:
    starts = {"Timer": "id @+ timeout"} if given.timer_starts == "processing" else {}
    keeps = {"Queue": "deleteMsg(msgs, id)"} if given.broken == "loses" else {"Queue": "msgs"}
    guard = "len(lidxvis) > 0 and ifSampled(lidxvis, node)"
    if given.broken == "loses":
        guard += " and ifMsgArrived(msgs, sampledId(lidxvis, node))"
    page.transition(
        "Get_Msg",
        takes={"Queue": "msgs", "Msg_Vis": "lidxvis", "Invisible": "lidxvis2", "Thread": "thread"},
        reads={"Receiver": "req", "Server_Nodes": "node"},
        guard=guard,
        action="id = sampledId(lidxvis, node); found = getIndexMsg(msgs, id); msg = replace(found, OT=time())",
        puts={
            **keeps,
            "Msg_Vis": "lidxvis" if given.broken == "shares" else "deleteId(lidxvis, id)",
            "Invisible": "lidxvis2 + [(id, invisible)]",
            "Processing": f"(thread, msg) @+ {given.forwarding}",
            **starts,
        },
        at=(360, 175),
    )


def _get_oldest_msg(page: Page, given: ReliableQueue) -> None:
    starts = {"Timer": "id @+ timeout"} if given.timer_starts == "processing" else {}
    broken = given.broken == "disorders"
    keeps = {"Queue": "deleteMsg(msgs, id)"} if given.broken == "loses" else {"Queue": "msgs"}
    kept = {"shares": "index", "disorders": "deleteAgain(index, id)"}.get(given.broken or "", "advance(index)")
    page.transition(
        "Get_Oldest_Msg",
        takes={"Queue": "msgs", "Queue_Index": "index", "Invisible": "lidxvis2", "Thread": "thread"},
        reads={"Receiver": "req", "Server_Nodes": "node"},
        guard="any(not ifInvisible(lidxvis2, m.id) for m in msgs)" if broken else "ifMsgArrived(msgs, oldest(index))",
        action=("id = first(m.id for m in msgs if not ifInvisible(lidxvis2, m.id))" if broken else "id = oldest(index)")
        + "; found = getIndexMsg(msgs, id); msg = replace(found, OT=time())",
        puts={
            **keeps,
            "Queue_Index": kept,
            "Invisible": "lidxvis2 + [(id, invisible)]",
            "Processing": f"(thread, msg) @+ {given.forwarding}",
            **starts,
        },
        at=(360, 175),
    )


def _recv_proc(net: Net) -> None:
    """Figure 8. `Transmit` loses a message with probability 1 - q."""
    colours, page = net.scope.colours, net.page("Recv_Proc")
    page.place("To_Receiver", colours["MsgTimed"], port=IN, at=(0, 0))
    page.place("Arrived", colours["MsgTimed"], at=(480, 0))
    page.place("Lost", colours["MsgTimed"], at=(240, 175))
    page.place("Receiver", colours["REQ"], port=IN_OUT, at=(720, 175))
    page.place("Received", colours["MsgTimed"], port=OUT, at=(960, 0))
    page.place("Delete_Req", colours["MsgTimed"], port=OUT, at=(960, 175))
    page.transition(
        "Transmit",
        takes={"To_Receiver": "sent"},
        action="ok = bernoulli(q)",
        puts={"Arrived": "sent if ok else empty", "Lost": "empty if ok else sent"},
        at=(240, 0),
    )
    page.transition(
        "Deliver",
        takes={"Arrived": "sent"},
        reads={"Receiver": "req"},
        action="recvtime = time()",
        puts={"Received": "sent", "Delete_Req": "sent @+ D_link"},
        at=(720, 0),
    )


def _visibility_timeout(net: Net, given: ReliableQueue) -> None:
    """Figure 9: `Cancel` is Algorithm 1, `Trigger` is Algorithm 2."""
    colours, page = net.scope.colours, net.page("Visibility_Timeout")
    page.place("Delete_Req", colours["MsgTimed"], port=IN, at=(0, 0))
    page.place("Queue", colours["Msgs"], port=IN_OUT, at=(0, 175))
    page.place("Invisible", colours["LIdxVis"], port=IN_OUT, at=(600, 0))
    visible = _visible(page, given, at=(600, 175))
    page.place("Timer", colours["MsgTimeout"], port=IN, at=(1200, 0))
    shown, cancelled, triggered = "lidxvis", "deleteId(lidxvis, sent.id)", "[(n, visible)] + lidxvis"
    if given.order == IN_ORDER:
        shown, cancelled, triggered = "index", "deleteAgain(index, sent.id)", "replace(index, again=[n] + index.again)"
    page.transition(
        "Cancel",
        takes={"Delete_Req": "sent", "Queue": "msgs", "Invisible": "lidxvis2", visible: shown},
        puts={"Queue": "deleteMsg(msgs, sent.id)", "Invisible": "deleteId(lidxvis2, sent.id)", visible: cancelled},
        at=(300, 87),
    )
    takes, puts, guard = {}, {}, ""
    if given.timeouts is not None:
        page.place("Timeouts", colours["INT"], [given.timeouts], at=(1200, 175))
        takes, puts = {"Timeouts": "left"}, {"Timeouts": "left - 1 if ifInvisible(lidxvis2, n) else left"}
        guard = "left > 0 or not ifInvisible(lidxvis2, n)"
    page.transition(
        "Trigger",
        takes={"Timer": "n", "Invisible": "lidxvis2", visible: shown, **takes},
        puts={
            "Invisible": "deleteId(lidxvis2, n)",
            visible: f"{triggered} if ifInvisible(lidxvis2, n) else {shown}",
            **puts,
        },
        guard=guard,
        at=(900, 87),
    )


def invariants(given: ReliableQueue) -> tuple[Invariant, ...]:
    """What the paper promises of every state: no message is lost, none is shared while its timer runs."""
    visible = "Cloud_Queue'Queue_Index" if given.order == IN_ORDER else "Cloud_Queue'Msg_Vis"
    sending = tuple(f"Send_Proc'{name}" for name in ("Produced", "Sending", "On_Link", "Arrived"))
    alone = ("Broker'Timer", visible) if given.timer_starts == "processing" else ("Broker'Timer", visible, "Processing")
    return (
        Invariant(
            "no message is lost", ("Msg_ID", *sending, "Addressed", "Cloud_Queue'Queue", "Received"), _nothing_lost
        ),
        Invariant("none is shared while its timer runs", alone, _not_shared),
    )


def histories(given: ReliableQueue) -> tuple[PathProperty, ...]:
    """What the paper promises of every path, for delivery in order: messages start in order."""
    if given.order != IN_ORDER:
        return ()
    return (PathProperty("messages start in order", 0, {"Get_Oldest_Msg": _started}, lambda last: last >= 0),)


def _nothing_lost(next_id: Any, *places: Any) -> bool:
    """Every message that was produced is with the sender, in the queue, or was received."""
    *tokens_of, addressed, queue, received = places
    known = {message[0] for lists in (addressed, queue) for messages in lists for message in messages}
    known |= {message[0] for message in received}
    for tokens in tokens_of:
        known.update(token[1][0] if token[0] == "thread" else token[0] for token in tokens)
    return all(number in known for number in range(1, next_id[0]))


def _not_shared(timers: Any, visible: Any, processing: Any = ()) -> bool:
    """A message whose timer runs is not visible, and has no other timer.

    Where the timer starts with sending, at most one thread processes a message before. Where it starts with processing,
    it may run out before that ends, and then the message is no longer one thread's alone.
    """
    shown = {each[0] if isinstance(each, tuple) else each for token in visible for each in _shown(token)}
    threads = [message[0] for _, message in processing]
    return len(set(timers)) == len(timers) and not shown & set(timers) and len(set(threads)) == len(threads)


def _shown(token: Any) -> Any:
    is_index = len(token) == 2 and isinstance(token[0], tuple) and isinstance(token[1], int)
    return token[0] if is_index else token


def _started(last: int, binding: dict[str, Any]) -> int:
    """The last message that started, or -1 after one that started too early. Sending one again changes nothing."""
    number: int = binding["id"]
    if last < 0 or number <= last:
        return last
    return number if number == last + 1 else -1
