package gsel

// InstrKind is the kind of an instruction of a program; those of WorkKind are the first.
type InstrKind int32
