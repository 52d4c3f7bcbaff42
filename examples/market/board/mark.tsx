/** The sign of the product: a line that is fresh at its end. */
export function Mark() {
  return (
    <svg className="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="9" className="mark-ground" />
      <path d="M6 20.5 L12 14.5 L17 18 L25.5 9.5" />
      <circle cx="25.5" cy="9.5" r="2.8" />
    </svg>
  );
}
