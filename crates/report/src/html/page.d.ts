// Declarations for the type checker, which the page does not contain: names that the frame defines, and fields that
// constructors assign together.

/** The chunk with the document; `page.html` defines it. */
declare const DOCUMENT_CHUNK: number;

interface Lanes {
  canvas: HTMLCanvasElement;
  timeline: any;
  stageName: (stage: number) => string;
  redraw: () => void;
  highlighted: any;
}

interface TimelineView {
  timeline: any;
  stageName: (stage: number) => string;
  stageLabel: (stage: number) => string;
}

interface PlanView {
  nodes: any[];
  edges: any[];
  frames: any[];
  codes: any[];
  measures: any;
  chosen: any;
  width: number;
  height: number;
  stageOf: Map<number, any>;
}
