import { createClient } from 'pgfresh/client';
import { FreshProvider } from 'pgfresh/react';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Board } from './board.tsx';

// Tabs do not share a socket here: each is to be seen as one viewer more.
const client = createClient();

createRoot(document.getElementById('board')!).render(
  <StrictMode>
    <FreshProvider client={client}>
      <Board />
    </FreshProvider>
  </StrictMode>,
);
