package gsel

// instr.go: instructions of programs and actions of schedules, with the layout of C. This file needs no cgo.

// InstrKind is the kind of an instruction of a program; those of WorkKind are the first.
type InstrKind int32

// Kinds of gsel/program.h.
const (
	InstrInput            InstrKind = 1
	InstrForward          InstrKind = 2
	InstrBackwardInput    InstrKind = 3
	InstrBackwardWeight   InstrKind = 4
	InstrBackward         InstrKind = 5
	InstrSend             InstrKind = 6
	InstrRecv             InstrKind = 7
	InstrBroadcast        InstrKind = 8
	InstrAllReduce        InstrKind = 9
	InstrWait             InstrKind = 10
	InstrLossAllReduce    InstrKind = 11
	InstrNorm             InstrKind = 12
	InstrStep             InstrKind = 13
	InstrAllGather        InstrKind = 14
	InstrRelease          InstrKind = 15
	InstrReduceScatter    InstrKind = 16
	InstrReduce           InstrKind = 17
	InstrRecompute        InstrKind = 18
	InstrScatter          InstrKind = 19
	InstrGather           InstrKind = 20
	InstrOverflow         InstrKind = 21
	InstrAllReduceTied    InstrKind = 22
	InstrAllReducePartial InstrKind = 23
	InstrPostValidate     InstrKind = 24
)

// InstrFlags of an instruction.
type InstrFlags uint32

// Flags of gsel/program.h.
const (
	InstrGradient   InstrFlags = 1
	InstrOptimistic InstrFlags = 2
)

// Instr is one instruction; fields that a kind does not use are -1.
type Instr struct {
	Kind                                            InstrKind
	Layer, Value, Microbatch, Bucket, AxisNum, Peer int32
	Flags                                           InstrFlags
}

// Action is one action of a schedule: WorkForward, WorkBackwardInput, WorkBackwardWeight or WorkBackward of a stage.
type Action struct {
	Kind              WorkKind
	Stage, Microbatch int32
}
